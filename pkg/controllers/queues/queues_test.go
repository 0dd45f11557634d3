package queues_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // It tries to be the provider, too.
	"k8s.io/component-base/metrics/testutil"

	"github.com/flotilla-kube/flotilla/pkg/controllers/queues"
)

func newQueue(name string) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: name})
}

// text returns the content of /metrics.
func text(t *testing.T) string {
	t.Helper()
	answer := httptest.NewRecorder()
	legacyregistry.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	return answer.Body.String()
}

// value returns the value of the series with these labels, given as alternating names and values,
// and reports whether there is one.
func value(t *testing.T, name string, labels ...string) (float64, bool) {
	t.Helper()
	metrics := testutil.NewMetrics()
	if err := testutil.ParseMetrics(text(t), &metrics); err != nil {
		t.Fatal(err)
	}
	for _, sample := range metrics[name] {
		matches := len(sample.Metric) == 1+len(labels)/2
		for i := 0; i < len(labels); i += 2 {
			matches = matches && string(sample.Metric[testutil.LabelName(labels[i])]) == labels[i+1]
		}
		if matches {
			return float64(sample.Value), true
		}
	}
	return 0, false
}

// TestIsTheProvider fails if another package's provider came first, or if queues do not find their
// shard.
func TestIsTheProvider(t *testing.T) {
	// Two instances are built at once, as when a member takes two shards.
	var both sync.WaitGroup
	for i, shard := range []string{"a", "b"} {
		both.Go(func() {
			g := queues.NewGroup("provider", shard)
			var q workqueue.TypedRateLimitingInterface[string]
			g.Do(func() { q = newQueue("provider") })
			for range i + 1 {
				q.Add("thing")
				item, _ := q.Get()
				q.Done(item)
			}
			q.ShutDown()
			g.Close()
		})
	}
	both.Wait()
	stray := newQueue("provider")
	defer stray.ShutDown()
	stray.Add("thing")
	stray.Get()
	for name, want := range map[string]float64{"a": 1, "b": 2} {
		for _, family := range []string{"flotilla_shard_queue_duration_seconds", "flotilla_shard_reconcile_duration_seconds"} {
			if got, _ := value(t, family+"_count", "ring", "provider", "shard", name); got != want {
				t.Errorf("%s of shard %s has counted %v items, want %v", family, name, got, want)
			}
		}
	}
	if got, _ := value(t, "workqueue_queue_duration_seconds_count", "name", "provider"); got != 4 {
		t.Errorf("workqueue_queue_duration_seconds has counted %v items, want those of all queues, 4", got)
	}
}

// TestSameAsStock compares the series of one queue with those that component-base's provider makes.
func TestSameAsStock(t *testing.T) {
	command := exec.CommandContext(t.Context(), "go", "run", "-trimpath", "-buildvcs=false", "./testdata/stock")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stock, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	g := queues.NewGroup("same", "a")
	var q workqueue.TypedRateLimitingInterface[string]
	g.Do(func() { q = newQueue("q") })
	defer q.ShutDown()
	q.AddRateLimited("thing")
	item, _ := q.Get()
	q.Done(item)
	got, want := series(text(t)), series(string(stock))
	if len(want) < 30 {
		t.Fatalf("the stock provider makes only\n%s", strings.Join(want, "\n"))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// series returns help, type and labels of the workqueues' families, without the values.
func series(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.Contains(line, "workqueue_") || strings.Contains(line, "name=") && !strings.Contains(line, `name="q"`) {
			continue
		}
		if !strings.HasPrefix(line, "#") {
			line = line[:strings.LastIndexByte(line, ' ')]
		}
		out = append(out, line)
	}
	return out
}

// TestWhatHasEndedDoesNotCount leaves work in the queues of an instance that ends.
func TestWhatHasEndedDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queues.Register()
		made := func(shard string) (*queues.Group, workqueue.TypedRateLimitingInterface[string]) {
			g := queues.NewGroup("ended", shard)
			var q workqueue.TypedRateLimitingInterface[string]
			g.Do(func() { q = newQueue("ended") })
			q.Add("worked on")
			q.Get()
			q.Add("left")
			return g, q
		}
		expect := func(family string, want float64) {
			t.Helper()
			if got, _ := value(t, family, "name", "ended"); got != want {
				t.Errorf("%s is %v, want %v", family, got, want)
			}
		}
		first, q := made("a")
		time.Sleep(10 * time.Second) // virtual
		second, other := made("b")
		time.Sleep(5 * time.Second) // virtual
		expect("workqueue_depth", 2)
		expect("workqueue_unfinished_work_seconds", 15+5)
		expect("workqueue_longest_running_processor_seconds", 15)
		first.Close()
		expect("workqueue_depth", 1)
		expect("workqueue_unfinished_work_seconds", 5)
		expect("workqueue_longest_running_processor_seconds", 5)
		q.Get() // Too late.
		time.Sleep(time.Second)
		q.ShutDown()
		expect("workqueue_depth", 1)
		expect("workqueue_unfinished_work_seconds", 6)
		second.Close()
		other.ShutDown()
		expect("workqueue_depth", 0)
		expect("workqueue_unfinished_work_seconds", 0)
	})
}

// TestOverlappingWork has a queue with several workers, of which the later ones finish first.
func TestOverlappingWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queues.Register()
		q := newQueue("overlap")
		defer q.ShutDown()
		expect := func(sum, longest float64) {
			t.Helper()
			for family, want := range map[string]float64{"unfinished_work": sum, "longest_running_processor": longest} {
				if got, found := value(t, "workqueue_"+family+"_seconds", "name", "overlap"); got != want || !found {
					t.Errorf("workqueue_%s_seconds is %v, want %v", family, got, want)
				}
			}
		}
		expect(0, 0)
		for _, item := range []string{"a", "b", "c"} {
			q.Add(item)
			q.Get()
			time.Sleep(10 * time.Second) // virtual
		}
		expect(30+20+10, 30)
		q.Done("b")
		expect(30+10, 30)
		q.Done("a")
		expect(10, 10)
		q.Done("c")
		expect(0, 0)
	})
}

// TestTickersEnd fails if a queue keeps a goroutine that wakes up twice a second, or if the queue
// does not work without it.
func TestTickersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := ticking(t)
		q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: "ticks"})
		synctest.Wait()
		if n := ticking(t) - before; n != 1 {
			t.Fatalf("a new queue has %d goroutines that tick: client-go calls them differently now", n)
		}
		time.Sleep(time.Second) // virtual
		synctest.Wait()
		if n := ticking(t) - before; n != 0 {
			t.Errorf("a queue of a second has %d goroutines that tick, want none", n)
		}
		q.Add("thing")
		item, _ := q.Get()
		q.Add("thing")
		q.Done(item)
		item, _ = q.Get()
		go func() { time.Sleep(time.Second); q.Done(item) }()
		q.ShutDownWithDrain()
		if _, shutDown := q.Get(); item != "thing" || !shutDown {
			t.Errorf("the queue gave %q and has shut down: %v", item, shutDown)
		}
	})
}

// ticking returns how many goroutines of queues tick.
func ticking(t *testing.T) int {
	t.Helper()
	var stacks bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		t.Fatal(err)
	}
	return strings.Count(stacks.String(), ").updateUnfinishedWorkLoop(")
}

// TestTickerElsewhere sets the gauge from a goroutine that must not end.
func TestTickerElsewhere(t *testing.T) {
	ended := make(chan bool)
	go func() {
		defer close(ended)
		queues.Tick(1)
		ended <- false
	}()
	if _, went := <-ended; !went {
		t.Error("the goroutine was ended")
	}
}

// TestForget counts the series while the plan changes a thousand times.
func TestForget(t *testing.T) {
	for generation := range 1000 {
		shard := fmt.Sprint(generation)
		g := queues.NewGroup("forget", shard)
		var q workqueue.TypedRateLimitingInterface[string]
		g.Do(func() { q = newQueue("forget") })
		q.Add("thing")
		q.ShutDown()
		g.Close()
		queues.Forget("forget", shard)
		q.Get() // Too late: its series must not come back.
	}
	if strings.Contains(text(t), `ring="forget"`) {
		t.Error("series of forgotten shards are left")
	}
	if values, goroutines := queues.Known("forget"); values > 0 || goroutines > 0 {
		t.Errorf("values of %d queues and %d goroutines are still known", values, goroutines)
	}
}

// TestNotSharded requires upstream's series and no others.
func TestNotSharded(t *testing.T) {
	g := queues.NewGroup("", "")
	g.Do(func() {
		q := newQueue("alone")
		defer q.ShutDown()
		q.Add("thing")
		q.Get()
	})
	if _, found := value(t, "flotilla_shard_queue_duration_seconds_count", "ring", "", "shard", ""); found || strings.Contains(text(t), `ring=""`) {
		t.Error("there is a series of a shard without a name")
	}
	if got, _ := value(t, "workqueue_adds_total", "name", "alone"); got != 1 {
		t.Errorf("workqueue_adds_total is %v, want 1", got)
	}
}

// BenchmarkItem passes one item through a queue, without any metrics and in a shard.
func BenchmarkItem(b *testing.B) {
	run := func(name string, in *queues.Group) {
		b.Run(name, func(b *testing.B) {
			var q workqueue.TypedRateLimitingInterface[string]
			in.Do(func() { q = newQueue(name) })
			defer q.ShutDown()
			for b.Loop() {
				q.Add("thing")
				item, _ := q.Get()
				q.Done(item)
			}
		})
	}
	run("", queues.NewGroup("", ""))
	run("process", queues.NewGroup("", ""))
	run("shard", queues.NewGroup("bench", "a"))
}

// BenchmarkObserve is the cost of a queue's shard; each item has two of these.
func BenchmarkObserve(b *testing.B) {
	g := queues.NewGroup("bench", "observe")
	for b.Loop() {
		g.Wait(.07)
	}
}

// BenchmarkGoroutine is a cost that occurs a few times when a queue is made.
func BenchmarkGoroutine(b *testing.B) {
	for b.Loop() {
		queues.Goroutine()
	}
}

// TestSettle checks that Settle waits for the items that are in the queue or with a worker at that
// moment, and for no others.
func TestSettle(t *testing.T) {
	g := queues.NewGroup("settle", "a")
	defer g.Close()
	if err := g.Settle(t.Context(), "settle"); err == nil {
		t.Error("a queue that does not exist has settled")
	}
	synctest.Test(t, func(t *testing.T) {
		var q workqueue.TypedRateLimitingInterface[string]
		g.Do(func() { q = newQueue("settle") })
		defer q.ShutDown()
		if err := g.Settle(t.Context(), "settle"); err != nil {
			t.Errorf("an empty queue: %v", err)
		}
		q.Add("first")
		q.Add("second")
		q.Add("second") // The same item.
		settled := make(chan error, 1)
		go func() { settled <- g.Settle(t.Context(), "settle") }()
		synctest.Wait()
		q.Add("later")
		for range 2 {
			item, _ := q.Get()
			synctest.Wait()
			if len(settled) > 0 {
				t.Fatalf("the queue settled before %s was processed", item)
			}
			q.Done(item)
		}
		synctest.Wait()
		if len(settled) == 0 {
			t.Fatal("the queue has not settled although all of its items have been processed")
		}
		if err := <-settled; err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // virtual
		defer cancel()
		if err := g.Settle(ctx, "settle"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with an item that nobody takes: %v, want the end of the context", err)
		}
	})
}

// TestQueued checks that the items of all queues count, except those of a closed group.
func TestQueued(t *testing.T) {
	before := queues.Queued()
	group := queues.NewGroup("", "")
	var q workqueue.TypedRateLimitingInterface[string]
	group.Do(func() { q = newQueue("queued") })
	other := newQueue("queued-other")
	for _, item := range []string{"a", "b", "c"} {
		q.Add(item)
		other.Add(item)
	}
	item, _ := other.Get()
	other.Done(item)
	if got := queues.Queued() - before; got != 5 {
		t.Errorf("%d items are queued, want 5", got)
	}
	group.Close()
	q.Add("d")
	if got := queues.Queued() - before; got != 2 {
		t.Errorf("%d items are queued once the group is closed, want 2", got)
	}
	q.ShutDown()
	other.ShutDown()
}
