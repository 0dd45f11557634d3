package leasetest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

func named(name, holder string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
}

// inStore runs test in a bubble with a store and a context with a timeout of ten seconds.
func inStore(t *testing.T, test func(t *testing.T, ctx context.Context, s *Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		t.Cleanup(s.Wait)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		test(t, ctx, s)
	})
}

func TestOptimisticConcurrency(t *testing.T) {
	inStore(t, func(t *testing.T, ctx context.Context, s *Store) {
		c := s.Client("c")
		if _, err := c.Update(ctx, named("l", "a"), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("Update() of nothing = %v, want NotFound", err)
		}
		first, err := c.Create(ctx, named("l", "a"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Create(ctx, named("l", "b"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("second Create() = %v, want AlreadyExists", err)
		}
		stale := first.DeepCopy()
		if _, err = c.Update(ctx, first, metav1.UpdateOptions{}); err != nil {
			t.Errorf("Update() = %v, want nil", err)
		}
		if _, err = c.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("Update() of an old version = %v, want Conflict", err)
		}
		bad := s.Get("l")
		bad.Spec.LeaseDurationSeconds = ptr.To[int32](0)
		if _, err = c.Update(ctx, bad, metav1.UpdateOptions{}); !apierrors.IsBadRequest(err) {
			t.Errorf("Update() with a duration of 0 = %v, want BadRequest", err)
		}
		last := s.Get("l")
		s.Remove("l")
		s.Put(named("l", "b"))
		if _, err = c.Update(ctx, last, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("Update() of a deleted Lease's successor = %v, want Conflict", err)
		}
		var verbs []string
		for _, w := range s.History() {
			verbs = append(verbs, w.Client+" "+w.Verb)
		}
		if got, want := len(verbs), 4; got != want {
			t.Errorf("History() has %v, want %d entries", verbs, want)
		}
	})
}

func TestWatches(t *testing.T) {
	initial := metav1.ListOptions{SendInitialEvents: ptr.To(true)}
	inStore(t, func(t *testing.T, ctx context.Context, s *Store) {
		c := s.Client("c")
		s.Put(named("l", "a"))
		list, _ := c.List(ctx, metav1.ListOptions{})
		s.Put(named("l", "b"))
		s.Remove("l")
		since, _ := c.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		fresh, _ := c.Watch(ctx, initial)
		for _, want := range []watch.EventType{watch.Modified, watch.Deleted} {
			if e := <-since.ResultChan(); e.Type != want {
				t.Errorf("Watch from a version delivers %s, want %s", e.Type, want)
			}
		}
		if e := <-fresh.ResultChan(); e.Type != watch.Bookmark || e.Object.(*coordinationv1.Lease).Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			t.Errorf("Watch-list of nothing delivers %+v, want its bookmark", e)
		}
		c.LagWatch(3 * time.Second)
		begin := time.Now()
		s.Put(named("l", "c"))
		if e := <-fresh.ResultChan(); e.Type != watch.Added || time.Since(begin) != 3*time.Second {
			t.Errorf("Watch delivers %s after %v, want ADDED after 3s", e.Type, time.Since(begin))
		}
		s.BreakWatches()
		if _, ok := <-fresh.ResultChan(); ok {
			t.Error("A broken watch continues")
		}
	})
}

func TestFaults(t *testing.T) {
	update := func(ctx context.Context, s *Store, c *Client) error {
		_, err := c.Update(ctx, s.Get("l"), metav1.UpdateOptions{})
		return err
	}
	for name, tc := range map[string]struct {
		inject  func(*Client)
		want    func(error) bool
		took    time.Duration
		written bool // once all requests have ended
	}{
		"none":        {func(*Client) {}, func(err error) bool { return err == nil }, 0, true},
		"drop":        {func(c *Client) { c.Drop(1, "update") }, isTimeout, 10 * time.Second, false},
		"drop reply":  {func(c *Client) { c.DropReply(1) }, isTimeout, 10 * time.Second, true},
		"delay":       {func(c *Client) { c.Delay(1, 2*time.Second, time.Second) }, func(err error) bool { return err == nil }, 3 * time.Second, true},
		"late":        {func(c *Client) { c.Delay(1, 12*time.Second, 0) }, isTimeout, 10 * time.Second, true},
		"conflict":    {func(c *Client) { c.Conflict(1) }, apierrors.IsConflict, 0, false},
		"block":       {func(c *Client) { c.Block("update") }, isTimeout, 10 * time.Second, false},
		"other verb":  {func(c *Client) { c.Block("get") }, func(err error) bool { return err == nil }, 0, true},
		"healed":      {func(c *Client) { c.Block(); c.Drop(1); c.Heal() }, func(err error) bool { return err == nil }, 0, true},
		"unblock":     {func(c *Client) { c.Block(); time.AfterFunc(time.Second, func() { c.Unblock() }) }, func(err error) bool { return err == nil }, time.Second, true},
		"by a script": {func(c *Client) { c.Script(func(string) Fault { return Fault{LoseRequest: true} }) }, isTimeout, 10 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			inStore(t, func(t *testing.T, ctx context.Context, s *Store) {
				s.Put(named("l", "a"))
				c := s.Client("c")
				tc.inject(c)
				begin := time.Now()
				if err := update(ctx, s, c); !tc.want(err) || time.Since(begin) != tc.took {
					t.Errorf("Update() = %v after %v, want %v", err, time.Since(begin), tc.took)
				}
				s.Wait()
				if got := len(s.History()) == 2; got != tc.written {
					t.Errorf("Written: %t, want %t", got, tc.written)
				}
			})
		})
	}
}

func isTimeout(err error) bool { return errors.Is(err, context.DeadlineExceeded) }
