package controllers

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// tally counts requests by resource and answers each.
type tally struct {
	mu    sync.Mutex
	count map[string]int
}

func (s *tally) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]++
	return &http.Response{
		StatusCode: http.StatusCreated, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Success"}`)),
	}, nil
}

// sendAll has workers in several shards send requests, and one goroutine in each send events, as
// fast as the limits allow.
func sendAll(t *testing.T, shards, workers int, closed <-chan struct{}) map[string]int {
	t.Helper()
	server := &tally{count: map[string]int{}}
	config := &rest.Config{Host: "http://server.test", Transport: server, QPS: 20, Burst: 30}
	l := newLimits(sharedLimits())
	// No deadline: a limiter refuses at once what it could not let through before one.
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Second, cancel)
	var all sync.WaitGroup
	repeat := func(send func() error) {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := send(); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range shards {
		builder := clientBuilder{
			base: clientbuilder.SimpleControllerClientBuilder{ClientConfig: config}, fence: transport.Wrappers(),
			controller: names.ReplicaSetController, limits: l, closed: closed,
		}
		client := builder.ClientOrDie("replicaset-controller")
		repeat(func() error {
			_, err := client.CoreV1().Events("").CreateWithEventNamespaceWithContext(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "n"}})
			return err
		})
		for range workers / shards {
			repeat(func() error {
				_, err := client.CoreV1().Pods("n").Create(ctx, &corev1.Pod{}, metav1.CreateOptions{})
				return err
			})
		}
	}
	all.Wait()
	return server.count
}

// TestEventsTakeNoMoreThanInOneProcess compares the events' share of the limits with their share in
// a process that is not sharded.
func TestEventsTakeNoMoreThanInOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stock := sendAll(t, 1, 8, nil)
		if ninth := (stock["events"] + stock["pods"]) / 9; stock["events"] < ninth*3/4 {
			t.Errorf("8 workers and one sender of events sent %v, want a ninth of events", stock)
		}
		for _, shards := range []int{2, 4, 8} {
			got := sendAll(t, shards, 8, nil)
			for resource, want := range stock {
				if more := got[resource] - want; more > want/4 || -more > want/4 {
					t.Errorf("%d shards sent %d %s in 100 s, one %d", shards, got[resource], resource, want)
				}
			}
		}
	})
}

// TestEventsLeaveFewWorkersTheirShare has a shard with fewer workers than upstream's controllers
// have by default.
func TestEventsLeaveFewWorkersTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, workers := range []int{1, 2, 5} {
			sent := sendAll(t, 1, workers, nil)
			if sixth := (sent["events"] + sent["pods"]) / 6; sent["events"] > sixth*5/4 || sent["events"] < sixth*3/4 {
				t.Errorf("%d workers and one sender of events sent %v in 100 s, want a sixth of events", workers, sent)
			}
		}
	})
}

// TestEventsTakeWhatNobodyWants has a controller that sends nothing but events.
func TestEventsTakeWhatNobodyWants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		sent := sendAll(t, 1, 0, nil)
		if most := 30 + 20*int(time.Since(began).Seconds()); sent["events"] < most*9/10 {
			t.Errorf("%d events were sent without other work, want nearly %d", sent["events"], most)
		}
	})
}

// TestEventsUnderAnyLimit tests extreme limits.
func TestEventsUnderAnyLimit(t *testing.T) {
	for _, qps := range []float32{1e-12, 20, 1e12} {
		l := newLimits(sharedLimits())
		limiter := eventLimiter{openLimiter{l.limiter(names.ReplicaSetController, "c", &rest.Config{QPS: qps, Burst: 1}, 1), nil}, l.turn(names.ReplicaSetController, "c")}
		if err := limiter.Wait(t.Context()); err != nil {
			t.Errorf("%v requests a second: the first must not wait: %v", qps, err)
		}
	}
}

// TestEventsPassClosedFences checks that a closed fence ends all waiting of its shard's events, for
// other shards' events and for the shard's own work.
func TestEventsPassClosedFences(t *testing.T) {
	for name, wait := range map[string]func(*turn){
		"another shard's event waits": func(turn *turn) { turn.taken <- struct{}{} },
		"it is not due":               func(*turn) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				closed := make(chan struct{})
				l := newLimits(sharedLimits())
				limiter := eventLimiter{openLimiter{l.limiter(names.ReplicaSetController, "c", &rest.Config{QPS: 0.001, Burst: 1}, 1), closed}, l.turn(names.ReplicaSetController, "c")}
				limiter.TryAccept() // The next one is a long time away.
				wait(limiter.turn)
				waited := make(chan error, 1)
				go func() { waited <- limiter.Wait(t.Context()) }()
				synctest.Wait()
				select {
				case err := <-waited:
					t.Fatalf("it did not wait: %v", err)
				default:
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if err := limiter.Wait(ctx); err == nil {
					t.Error("it passed although its context had ended")
				}
				closing := time.Now()
				close(closed)
				if err := <-waited; err != nil || time.Since(closing) > 0 {
					t.Errorf("it passed %v after its fence was closed: %v", time.Since(closing), err)
				}
			})
		})
	}
}
