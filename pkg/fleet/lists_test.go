package fleet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// TestListsAreShared checks that the first callers get lists of their own. Callers that come while
// these are under way share the next list: the running ones may miss what they have written.
func TestListsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared lists
		var all sync.WaitGroup
		var made atomic.Int32
		list := func(context.Context) ([]election.Observation, error) {
			n := made.Add(1)
			time.Sleep(time.Second) // virtual
			return []election.Observation{{Record: leaserecord.Record{Name: fmt.Sprint(n)}}}, nil
		}
		read := func(want int) {
			all.Go(func() {
				seen, err := shared.read(t.Context(), all.Go, list)
				if err != nil || len(seen) != 1 || seen[0].Name != fmt.Sprint(want) {
					t.Errorf("read list %v, %v, want list %d", seen, err, want)
				}
			})
			synctest.Wait()
		}
		for i := range mostLists {
			read(i + 1)
		}
		for range 50 {
			read(mostLists + 1)
		}
		all.Wait()
		read(mostLists + 2)
		all.Wait()
		if n := made.Load(); n != mostLists+2 {
			t.Errorf("%d lists were made, want %d", n, mostLists+2)
		}
	})
}

// TestNextListBegins checks that a list for which somebody waits begins, even if the callers of all
// lists before it have gone by the time these begin.
func TestNextListBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared lists
		var later []func()
		start := func(f func()) { later = append(later, f) }
		list := func(context.Context) ([]election.Observation, error) { return nil, nil }
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for range mostLists {
			_, _ = shared.read(gone, start, list)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if _, err := shared.read(t.Context(), start, list); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		for _, f := range later {
			f()
		}
		waiting.Wait()
		if len(later) != mostLists || shared.underWay != 0 {
			t.Errorf("%d lists were begun apart, and %d are under way, want %d and none", len(later), shared.underWay, mostLists)
		}
	})
}

// TestListsEndWithTheirReaders checks that a list without waiting callers is cancelled, and that
// the next one begins.
func TestListsEndWithTheirReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared lists
		var all sync.WaitGroup
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		hangs := func(ctx context.Context) ([]election.Observation, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		all.Go(func() {
			if _, err := shared.read(ctx, all.Go, hangs); !errors.Is(err, gone) {
				t.Errorf("got %v, want the cause of the end", err)
			}
		})
		synctest.Wait()
		cancel(gone)
		all.Wait()
		if shared.underWay != 0 {
			t.Errorf("%d lists are under way, but nobody waits for one", shared.underWay)
		}
		answers := func(context.Context) ([]election.Observation, error) { return nil, nil }
		if _, err := shared.read(t.Context(), all.Go, answers); err != nil {
			t.Error(err)
		}
		all.Wait()
	})
}
