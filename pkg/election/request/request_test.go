package request

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

const (
	name = "f-ns-01"
	s    = time.Second
)

var resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func conflict() error { return apierrors.NewConflict(resource, name, errors.New("stale")) }
func exists() error   { return apierrors.NewAlreadyExists(resource, name) }
func notFound() error { return apierrors.NewNotFound(resource, name) }
func refused() error  { return apierrors.NewForbidden(resource, name, errors.New("no")) }

// loop is a loop with a requester. It logs what its observer and the loop itself are told.
type loop struct {
	*Requester
	leasetest.Transcript
	store   *leasetest.Store
	client  *leasetest.Client
	answers chan func()
}

func (l *loop) Observe(lease *coordinationv1.Lease) {
	l.Logf("observes version %s", lease.ResourceVersion)
}

func (l *loop) Missing(name, version string) { l.Logf("misses %s since version %q", name, version) }

// inLoop runs test in a bubble, with the version of the store's only Lease. The bubble fails the
// test if a goroutine is left behind.
func inLoop(t *testing.T, test func(t *testing.T, l *loop, version string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &loop{store: leasetest.NewStore(), answers: make(chan func(), 1), Transcript: leasetest.Transcript{Begin: time.Now()}}
		l.client = l.store.Client("a")
		l.store.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}})
		l.Requester = New(Config{
			Reader: l.client, Observer: l, Clock: clock.RealClock{}, Conflicts: 2, Answers: l.answers,
			Pause: func() time.Duration { return 8 * s },
		})
		test(t, l, l.store.Get(name).ResourceVersion)
		l.store.Wait()
	})
}

// answering returns a request that takes a second, and then has this answer.
func (l *loop) answering(lease *coordinationv1.Lease, err error) Request {
	return Request{
		Name: name, Version: "7", Timeout: 5 * s, Reread: true,
		Do: func(ctx context.Context, _ time.Time) (*coordinationv1.Lease, error) {
			select {
			case <-time.After(s):
				return lease, err
			case <-ctx.Done():
				return lease, ctx.Err()
			}
		},
		Then: func(a Answer) { l.Logf("is answered: busy %t, error %v", l.Busy(), a.Err) },
	}
}

func (l *loop) expect(t *testing.T, want string) {
	t.Helper()
	if problem := l.Compare(want); problem != "" {
		t.Error(problem)
	}
}

// TestAnswers checks that the observer learns what a request has shown before the loop has the
// answer. If the Lease differs from what was known, that is a conflict, and the Lease is read
// again.
func TestAnswers(t *testing.T) {
	const reread = "1.0 observes version 1"
	for _, tc := range []struct {
		name                    string
		err                     error
		change                  func(*loop, *Request)
		lease, conflict, failed bool
		told                    string
		took                    time.Duration
	}{
		{"shown", nil, nil, true, false, false, "1.0 observes version 3", s},
		{"shown nothing", nil, func(l *loop, q *Request) { q.Do = l.answering(nil, nil).Do }, false, false, false, "", s},
		{"conflict", conflict(), nil, false, true, true, reread, s},
		{"already there", exists(), nil, false, true, true, reread, s},
		{"gone", notFound(), func(l *loop, _ *Request) { l.store.Remove(name) },
			false, true, true, `1.0 misses f-ns-01 since version "7"`, s},
		{"conflict, not to be read again", conflict(), func(_ *loop, q *Request) { q.Reread = false },
			false, true, true, "", s},
		{"conflict, cannot be read", conflict(), func(l *loop, _ *Request) { l.client.Fail(1, "get") },
			false, true, true, "", s},
		{"conflict, reading hangs", conflict(), func(l *loop, _ *Request) { l.client.Drop(1, "get") },
			false, true, true, "", 5 * s},
		{"no namespace", notFound(), func(_ *loop, q *Request) { q.Creates = true }, false, false, true, "", s},
		{"refused", refused(), nil, false, false, true, "", s},
		{"hung", nil, func(_ *loop, q *Request) { q.Timeout = s / 2 }, false, false, true, "", s / 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inLoop(t, func(t *testing.T, l *loop, _ string) {
				q := l.answering(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: "3"}}, tc.err)
				if tc.change != nil {
					tc.change(l, &q)
				}
				begin, do := time.Now(), q.Do
				q.Do = func(ctx context.Context, start time.Time) (*coordinationv1.Lease, error) {
					if !start.Equal(begin) {
						t.Errorf("Do has a start after %v", start.Sub(begin))
					}
					return do(ctx, start)
				}
				var got *Answer
				q.Then = func(a Answer) { got = &a }
				l.Send(t.Context(), q)
				time.Sleep(10 * s) // virtual
				if !l.Busy() || got != nil {
					t.Errorf("Busy %t, answer %v before the loop has called it", l.Busy(), got)
				}
				(<-l.answers)()
				if l.Busy() || got == nil {
					t.Fatalf("Busy %t, answer %v after the loop has called it", l.Busy(), got)
				}
				if (got.Lease != nil) != tc.lease || got.Conflict != tc.conflict || (got.Err != nil) != tc.failed {
					t.Errorf("Answer %+v, want a Lease %t, conflict %t, failed %t", *got, tc.lease, tc.conflict, tc.failed)
				}
				if !got.Start.Equal(begin) || got.Took() != tc.took {
					t.Errorf("Started after %v and took %v, want %v", got.Start.Sub(begin), got.Took(), tc.took)
				}
				l.expect(t, tc.told)
			})
		})
	}
}

// TestFailures covers the table in Requester's comment.
func TestFailures(t *testing.T) {
	failed, refusal, ok := Answer{Err: refused()}, Answer{Err: conflict(), Conflict: true}, Answer{}
	for _, tc := range []struct {
		conflicts int
		answers   []Answer
		want      string
	}{
		{2, []Answer{failed, failed, failed}, "[8s/4 8s/2 8s/4]"},
		{2, []Answer{refusal, refusal, refusal, refusal}, "[0s/4 2s/2 0s/4 2s/4]"},
		{4, []Answer{refusal, refusal, refusal, refusal, refusal}, "[0s/4 0s/2 0s/4 2s/4 0s/4]"},
		{2, []Answer{failed, refusal, refusal}, "[8s/4 2s/2 0s/4]"},
		{2, []Answer{refusal, ok, refusal, refusal}, "[0s/4 0s/4 2s/2]"},
		{2, []Answer{failed, ok, failed}, "[8s/4 8s/4]"},
	} {
		r := New(Config{Conflicts: tc.conflicts, Pause: func() time.Duration { return 8 * s }})
		var got []string
		for _, a := range tc.answers {
			if a.Err == nil {
				r.Succeeded()
				continue
			}
			got = append(got, fmt.Sprintf("%v/%d", r.Failed(a), r.Verbosity()))
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("Pauses after %v, %d conflicts: %v, want %s", tc.answers, tc.conflicts, got, tc.want)
		}
	}
}

// TestJitter checks that a pause is never shortened, and is lengthened by at most a fifth.
func TestJitter(t *testing.T) {
	for range 1000 {
		if got := Jitter(10 * s); got < 10*s || got > 12*s {
			t.Fatalf("Jitter(10s) = %v", got)
		}
	}
}

// TestCancel checks that a cancelled request is answered all the same, and that later requests are
// not cancelled.
func TestCancel(t *testing.T) {
	inLoop(t, func(t *testing.T, l *loop, _ string) {
		l.Cancel()
		l.Send(t.Context(), l.answering(nil, nil))
		time.AfterFunc(s/2, l.Cancel)
		(<-l.answers)()
		l.Cancel()
		l.Send(t.Context(), l.answering(nil, nil))
		(<-l.answers)()
		l.expect(t, `
			0.5 is answered: busy false, error context canceled
			1.5 is answered: busy false, error <nil>`)
	})
}

// TestEndedLoop checks that Wait waits for requests under way, and that no request waits for a loop
// that has ended.
func TestEndedLoop(t *testing.T) {
	inLoop(t, func(t *testing.T, l *loop, _ string) {
		ctx, cancel := context.WithCancel(t.Context())
		other := New(Config{Reader: l.client, Observer: l, Clock: clock.RealClock{}, Conflicts: 2, Answers: l.answers})
		l.Send(ctx, l.answering(nil, nil))
		other.Send(ctx, l.answering(nil, nil))
		time.Sleep(2 * s) // virtual: the second answer has no room
		begin := time.Now()
		time.AfterFunc(s, cancel)
		l.Wait()
		other.Wait()
		if took := time.Since(begin); took != s {
			t.Errorf("Wait() took %v, want 1s", took)
		}
	})
}

// TestGet reads a Lease, and reports the version last known if there is none.
func TestGet(t *testing.T) {
	inLoop(t, func(t *testing.T, l *loop, version string) {
		if lease, err := l.Get(t.Context(), name, "0"); err != nil || lease.ResourceVersion != version {
			t.Errorf("Get() = %v, %v", lease, err)
		}
		l.client.Fail(1, "get")
		if lease, err := l.Get(t.Context(), name, version); err == nil || lease != nil {
			t.Errorf("Get() = %v, %v, want an error", lease, err)
		}
		l.store.Remove(name)
		if lease, err := l.Get(t.Context(), name, version); err != nil || lease != nil {
			t.Errorf("Get() of nothing = %v, %v", lease, err)
		}
		l.expect(t, `
			0.0 observes version 1
			0.0 misses f-ns-01 since version "1"`)
	})
}
