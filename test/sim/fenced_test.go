package sim

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// admission is the API server's part of deploy/fence. It refuses the credentials that a member's
// marked Lease lists, once its own watch has delivered the mark.
type admission struct {
	client *leasetest.Client
	cancel context.CancelFunc
	ended  chan struct{}

	mu     sync.Mutex
	leases map[string]*coordinationv1.Lease
}

// admit starts the API server's watch, which lags by up to longestMarkLag.
func (sim *simulation) admit() {
	a := &admission{client: sim.store.Client("apiserver"), ended: make(chan struct{}), leases: map[string]*coordinationv1.Lease{}}
	sim.admission = a
	if !sim.enforced {
		close(a.ended)
		a.cancel = func() {}
		return
	}
	a.client.LagWatch(upTo(sim.random, longestMarkLag))
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(sim.t.Context())
	go func() {
		defer close(a.ended)
		for ctx.Err() == nil {
			a.watch(ctx)
		}
	}()
}

func (a *admission) watch(ctx context.Context) {
	w, err := a.client.Watch(ctx, metav1.ListOptions{SendInitialEvents: ptr.To(true)})
	if err != nil {
		return // ctx has ended
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		lease, ok := event.Object.(*coordinationv1.Lease)
		if !ok || event.Type == watch.Bookmark {
			continue
		}
		a.mu.Lock()
		if event.Type == watch.Deleted {
			delete(a.leases, lease.Name)
		} else {
			a.leases[lease.Name] = lease
		}
		a.mu.Unlock()
	}
}

// stop ends the watch.
func (a *admission) stop() {
	a.cancel()
	<-a.ended
}

// refuses implements the policy of deploy/fence and its binding.
func (a *admission) refuses(credential string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, lease := range a.leases {
		_, ofFleet := lease.Labels[leaseapi.FleetLabel]
		_, marked := lease.Labels[leaserecord.MarkedLabel]
		if !ofFleet || !marked || lease.Labels[leaseapi.KindLabel] != leaseapi.KindMember {
			continue
		}
		if slices.Contains(strings.Split(lease.Annotations[leaserecord.FencedCredentialsAnnotation], ","), credential) {
			return true
		}
	}
	return false
}

// credential is what a process's work writes with.
type credential struct {
	turn      chan struct{} // holds one token
	published bool          // belongs to the holder of the token
}

// id returns the ID by which the API server knows the credential.
func (p *process) id() string { return "JTI=" + p.Incarnation() }

// mint publishes the process's credential before anything is written with it, so that it can be
// fenced.
func (p *process) mint(ctx context.Context) error {
	p.credential.turn <- struct{}{}
	defer func() { <-p.credential.turn }()
	if p.credential.published {
		return nil
	}
	err := p.PublishCredential(ctx, membership.Credential{ID: p.id(), Lifetime: time.Hour})
	p.credential.published = err == nil
	return err
}
