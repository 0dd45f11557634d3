package request

import (
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// JitterFactor is the most by which Jitter multiplies a duration.
const JitterFactor = 1.2

// Jitter lengthens a duration by up to a fifth, at random, so that members do not act at the same
// time.
func Jitter(d time.Duration) time.Duration { return wait.Jitter(d, JitterFactor-1) }

// conflictPause divides the pause after conflicts. Without a pause, many writers of the same Lease
// would keep conflicting.
const conflictPause = 4

// Observer records what requests have shown.
type Observer interface {
	// Observe records a Lease that a request has returned.
	Observe(lease *coordinationv1.Lease)
	// Missing records that a request found no Lease. version is the last one known before the
	// request.
	Missing(name, version string)
}

// Config configures a Requester. All fields are required.
type Config struct {
	// Reader reads a Lease. The read must be consistent, as a get without a resourceVersion is.
	Reader interface {
		Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	}
	// Observer is called on the goroutines of requests.
	Observer Observer
	// Clock times requests.
	Clock interface{ Now() time.Time }
	// Pause returns the pause after a failure, jittered.
	Pause func() time.Duration
	// Conflicts is the number of conflicts in a row after which the requester pauses for a quarter
	// of Pause.
	Conflicts int
	// Answers delivers functions for the loop to call. Requesters of one loop may share it.
	Answers chan<- func()
}

// Request is what to send.
type Request struct {
	// Name of the Lease.
	Name string
	// Version of the Lease as last known; empty if none is.
	Version string
	// Timeout bounds the request, including reading the Lease again.
	Timeout time.Duration
	// Creates is set if the request creates the Lease. Not found then means that the namespace is
	// missing, which is not a conflict.
	Creates bool
	// Reread is set to read the Lease after a conflict, before the answer.
	Reread bool
	// Do sends the request, on its own goroutine. It returns the Lease as the server has it; nil if
	// there is none, or nothing to do. start is Answer.Start.
	Do func(ctx context.Context, start time.Time) (*coordinationv1.Lease, error)
	// Then is called by the loop, with the answer.
	Then func(Answer)
}

// Answer is the outcome of a request.
type Answer struct {
	// Start is before the request was sent, and End after its answer arrived.
	Start, End time.Time
	// Lease is what Do returned; nil if it failed.
	Lease *coordinationv1.Lease
	// Err is why the request failed. The server may have executed it all the same.
	Err error
	// Conflict reports that Err means that the Lease differs from what was known.
	Conflict bool
}

// Took returns how long the request took.
func (a Answer) Took() time.Duration { return a.End.Sub(a.Start) }

// IsRefused reports whether the API server refuses what a request writes: something there, such as
// an admission policy, does not allow it. A webhook that names no code refuses with 400. It may be
// of short duration, for example until the server has read its roles.
func IsRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// Requester sends one request at a time for a loop. Only the loop may call its methods, except Get.
// It counts failures in a row, and determines when the next request may follow a failed one:
//
//	Answer                        Failures in a row    Next request
//	no error                      none, by Succeeded   when the loop wants it
//	conflict                      one more             at once
//	conflict, every Conflicts-th  one more             a quarter of Pause after the start
//	any other error               one more             Pause after the start
//
// After a conflict the Lease has just been read. After a pause, that read would be out of date
// again if somebody writes all the time. A request that hung until its timeout has waited long
// enough, so a pause counts from the start. The loop waits; Send sends at once.
type Requester struct {
	cfg      Config
	busy     bool
	cancel   context.CancelFunc // of the last request
	failures int
	running  sync.WaitGroup
}

// New returns a requester that has sent nothing.
func New(cfg Config) *Requester {
	return &Requester{cfg: cfg, cancel: func() {}}
}

// Busy reports whether a request is under way: from Send until the loop has called its answer.
func (r *Requester) Busy() bool { return r.busy }

// Send sends a request, and returns at once. It must not be called while Busy. Once ctx has ended,
// the answer may be dropped.
func (r *Requester) Send(ctx context.Context, q Request) {
	a := Answer{Start: r.cfg.Clock.Now()}
	requesting, cancel := context.WithTimeout(ctx, q.Timeout)
	r.busy, r.cancel = true, cancel
	r.running.Go(func() {
		defer cancel()
		a = r.carryOut(requesting, q, a)
		select {
		case r.cfg.Answers <- func() { r.busy = false; q.Then(a) }:
		case <-ctx.Done():
		}
	})
}

func (r *Requester) carryOut(ctx context.Context, q Request, a Answer) Answer {
	a.Lease, a.Err = q.Do(ctx, a.Start)
	gone := apierrors.IsNotFound(a.Err) && !q.Creates
	a.Conflict = gone || apierrors.IsConflict(a.Err) || apierrors.IsAlreadyExists(a.Err)
	switch {
	case a.Err != nil:
		a.Lease = nil
		if a.Conflict && q.Reread {
			_, _ = r.Get(ctx, q.Name, q.Version) // If that fails too, the watch delivers the Lease.
		}
	case a.Lease != nil:
		r.cfg.Observer.Observe(a.Lease)
	}
	a.End = r.cfg.Clock.Now()
	return a
}

// Get reads the Lease, last known at version, and informs the observer. It returns nil if there is
// none. It is for use in Do.
func (r *Requester) Get(ctx context.Context, name, version string) (*coordinationv1.Lease, error) {
	lease, err := r.cfg.Reader.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		r.cfg.Observer.Missing(name, version)
		return nil, nil
	case err != nil:
		return nil, err
	}
	r.cfg.Observer.Observe(lease)
	return lease, nil
}

// Cancel gives up the request under way, if any. The loop receives its answer all the same.
func (r *Requester) Cancel() { r.cancel() }

// Wait returns once no request is under way. The context of Send must have ended, or the answer
// must have been received.
func (r *Requester) Wait() { r.running.Wait() }

// Succeeded ends a series of failures.
func (r *Requester) Succeeded() { r.failures = 0 }

// Failed counts a failed request, and returns how long after its start the next may be sent.
func (r *Requester) Failed(a Answer) time.Duration {
	r.failures++
	pause := r.cfg.Pause()
	switch {
	case !a.Conflict:
		return pause
	case r.failures%r.cfg.Conflicts != 0:
		return 0
	default:
		return pause / conflictPause
	}
}

// Verbosity returns the level at which to log the last failure: 2 for the second in a row, else 4.
func (r *Requester) Verbosity() int {
	if r.failures == 2 {
		return 2
	}
	return 4
}
