package leasetest

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// Bubble is one synctest bubble with a Lease store and a transcript.
type Bubble struct {
	T     *testing.T
	Store *Store
	Transcript
}

// InBubble runs test in a bubble. The bubble fails the test if a goroutine is left behind.
func InBubble(t *testing.T, test func(t *testing.T, b *Bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &Bubble{T: t, Store: NewStore(), Transcript: Transcript{Begin: time.Now()}}
		t.Cleanup(b.Store.Wait)
		test(t, b)
	})
}

// Sleep lets d of virtual time pass, and waits until everything due by then has happened.
func (b *Bubble) Sleep(d time.Duration) {
	time.Sleep(d) // virtual
	synctest.Wait()
}

// Expect compares the transcript since the last call with want.
func (b *Bubble) Expect(want string) {
	b.T.Helper()
	if problem := b.Compare(want); problem != "" {
		b.T.Error(problem)
	}
}

// Holder returns the holder of a Lease in the store; empty if it has none or does not exist.
func (b *Bubble) Holder(name string) string {
	return leaserecord.From(b.Store.Get(name)).Holder
}

// Lease returns a Lease as another process may have left it, with timestamps that do not fit this
// process's clock. Without a holder it is released.
func Lease(name, holder string, term int32) *coordinationv1.Lease {
	annotations := map[string]string{}
	if holder == "" {
		annotations[leaserecord.ReleasedAnnotation] = strconv.Itoa(int(term))
	}
	stamp := metav1.NewMicroTime(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       &holder,
			LeaseTransitions:     &term,
			LeaseDurationSeconds: ptr.To[int32](15),
			AcquireTime:          &stamp,
			RenewTime:            &stamp,
		},
	}
}

// Process is one process in a bubble, which observes Leases while it runs.
type Process struct {
	// Stopped is closed once it has ended.
	Stopped chan struct{}
	// Cancel asks it to end.
	Cancel context.CancelFunc
}

// Run starts run, and observe, which outlives it, until Stop or the end of the test.
func (b *Bubble) Run(run, observe func(context.Context)) *Process {
	p := &Process{Stopped: make(chan struct{})}
	base := klog.NewContext(b.T.Context(), klog.Logger{})
	ctx, cancel := context.WithCancel(base)
	p.Cancel = cancel
	observing, stopObserving := context.WithCancel(base)
	var observer sync.WaitGroup
	observer.Go(func() { observe(observing) })
	go func() {
		defer close(p.Stopped)
		run(ctx)
		stopObserving()
		observer.Wait()
	}()
	b.T.Cleanup(func() { p.Cancel(); <-p.Stopped })
	return p
}

// Stop ends the process as planned and waits for it.
func (p *Process) Stop() {
	p.Cancel()
	<-p.Stopped
	synctest.Wait()
}
