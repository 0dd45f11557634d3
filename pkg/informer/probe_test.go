package informer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func newTestProber(t *testing.T, s *apiServer) (*listwatch.Prober, *Pool, *clocktesting.FakePassiveClock) {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(time.Now())
	pool := newTestPool(t, s, clock, 0)
	return pool.prober, pool, clock
}

// checkProbe checks the answer to a probe, and the number of requests it takes.
func checkProbe(t *testing.T, p *listwatch.Prober, s *apiServer, gvr schema.GroupVersionResource, want bool, requests int) {
	t.Helper()
	if got := p.Honoured(t.Context(), listwatch.Form{Resource: gvr}, nil); got != want {
		t.Errorf("server is said to filter %s: %t, want %t", gvr.Resource, got, want)
	}
	if got := len(s.requests()); got != requests {
		t.Errorf("took %d requests, want %d", got, requests)
	}
}

func TestProbe(t *testing.T) {
	for _, test := range []struct {
		name   string
		server *apiServer
		want   listwatch.Mode
	}{
		{"a server that echoes the selector", &apiServer{shards: true}, listwatch.ServerSide},
		{"a server that does not", &apiServer{}, listwatch.ClientSide},
		{"a server that refuses", &apiServer{shards: true, fails: http.StatusInternalServerError}, listwatch.ClientSide},
		{"a server that does not let us", &apiServer{shards: true, fails: http.StatusForbidden}, listwatch.ClientSide},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, pool, _ := newTestProber(t, test.server)
			checkProbe(t, p, test.server, configMaps, test.want == listwatch.ServerSide, 1)
			want := map[schema.GroupVersionResource]listwatch.Mode{configMaps: test.want}
			if diff := cmp.Diff(want, pool.Modes()); diff != "" {
				t.Errorf("modes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestProbeIsCheap checks the probe's request: one object at most, from the server's cache, with a
// selector whose only effect is the echo.
func TestProbeIsCheap(t *testing.T) {
	s := &apiServer{shards: true}
	p, _, _ := newTestProber(t, s)
	p.Honoured(t.Context(), listwatch.Form{Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}}, nil)
	requests := s.requests()
	if len(requests) != 1 {
		t.Fatalf("made %d requests, want 1", len(requests))
	}
	if got := requests[0].URL.Path; got != "/apis/apps/v1/deployments" {
		t.Errorf("asked %s", got)
	}
	got := requests[0].URL.Query()
	if got.Get("limit") != "1" || got.Get("resourceVersion") != "0" || got.Get("shardSelector") != listwatch.ProbeSelector || got.Has("watch") {
		t.Errorf("asked for %v", got)
	}
}

func TestProbeIsRepeated(t *testing.T) {
	s := &apiServer{shards: true}
	p, pool, clock := newTestProber(t, s)
	checkProbe(t, p, s, configMaps, true, 1)

	s.set(func(s *apiServer) { s.shards = false })
	clock.SetTime(clock.Now().Add(listwatch.ProbeFor - time.Nanosecond))
	checkProbe(t, p, s, configMaps, true, 0)
	clock.SetTime(clock.Now().Add(time.Nanosecond))
	checkProbe(t, p, s, configMaps, false, 1)
	if got := pool.Modes()[configMaps]; got != listwatch.ClientSide {
		t.Errorf("mode is %s after the server has changed", got)
	}

	s.set(func(s *apiServer) { s.shards, s.fails = true, http.StatusServiceUnavailable })
	clock.SetTime(clock.Now().Add(listwatch.ProbeFor))
	checkProbe(t, p, s, configMaps, false, 1)
	s.set(func(s *apiServer) { s.fails = 0 })
	checkProbe(t, p, s, configMaps, false, 0)
	clock.SetTime(clock.Now().Add(listwatch.ProbeFor))
	checkProbe(t, p, s, configMaps, true, 1)
}

// TestFailedProbeChangesNothing checks that a server which refuses a probe, as one does that has
// just started, still counts as filtering. It is asked again soon, and its answer counts.
func TestFailedProbeChangesNothing(t *testing.T) {
	s := &apiServer{shards: true}
	p, pool, clock := newTestProber(t, s)
	checkProbe(t, p, s, configMaps, true, 1)
	for _, fails := range []int{http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusForbidden} {
		s.set(func(s *apiServer) { s.fails = fails })
		clock.SetTime(clock.Now().Add(listwatch.ProbeFor))
		checkProbe(t, p, s, configMaps, true, 1)
		checkProbe(t, p, s, configMaps, true, 0)
		if got := pool.Modes()[configMaps]; got != listwatch.ServerSide {
			t.Errorf("mode is %s after a probe that was answered with status %d", got, fails)
		}
	}
	s.set(func(s *apiServer) { s.shards, s.fails = false, 0 })
	clock.SetTime(clock.Now().Add(listwatch.ProbeAgain))
	checkProbe(t, p, s, configMaps, false, 1)

	s.set(func(s *apiServer) { s.shards, s.fails = true, http.StatusServiceUnavailable })
	clock.SetTime(clock.Now().Add(listwatch.ProbeFor))
	checkProbe(t, p, s, configMaps, false, 1)
	s.set(func(s *apiServer) { s.fails = 0 })
	clock.SetTime(clock.Now().Add(listwatch.ProbeAgain))
	checkProbe(t, p, s, configMaps, true, 1)
}

var errCutOff = errors.New("cut off")

// asServed lists custom resources as an API server does, which does not say whether it has
// filtered.
type asServed struct {
	listwatch.Reader
	namespaces []string
	// filters says that the server honours the selector, echoes that it says so, and ignoresLimit
	// that it always sends everything.
	filters, echoes, ignoresLimit bool
	err                           error
	asked                         []metav1.ListOptions
}

// List implements listwatch.Reader.
func (s *asServed) List(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	s.asked = append(s.asked, o)
	if s.err != nil {
		return nil, s.err
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"metadata": map[string]any{"resourceVersion": "7"}}}
	if s.echoes {
		list.Object["metadata"] = map[string]any{"shardInfo": map[string]any{"selector": o.ShardSelector}}
	}
	for _, namespace := range s.namespaces {
		kept := slices.ContainsFunc(listwatch.KeyspaceHalves, func(half shard.Range) bool {
			return o.ShardSelector == half.Selector() && half.ContainsNamespace(namespace)
		})
		if s.filters && !kept {
			continue
		}
		obj := unstructured.Unstructured{Object: map[string]any{}}
		obj.SetNamespace(namespace)
		if list.Items = append(list.Items, obj); !s.ignoresLimit {
			break
		}
	}
	return list, nil
}

// inHalf returns a namespace in a half of the keyspace.
func inHalf(t *testing.T, half int) string {
	t.Helper()
	for i := range 100 {
		if name := fmt.Sprintf("%d-namespace", i); listwatch.KeyspaceHalves[half].ContainsNamespace(name) {
			return name
		}
	}
	t.Fatalf("no name found in half %d of the keyspace", half)
	return ""
}

// TestProbeOfCustomResources checks probes of custom resources, whose lists show whether they were
// filtered, but do not say so.
func TestProbeOfCustomResources(t *testing.T) {
	low, high := inHalf(t, 0), inHalf(t, 1)
	berth := listwatch.Form{Resource: berths}
	for _, test := range []struct {
		name   string
		server *asServed
		// pods says that the server echoes the selector in lists of pods.
		pods  bool
		want  listwatch.Mode
		lists int
	}{
		{"filters both halves", &asServed{namespaces: []string{low, high}, filters: true}, false, listwatch.ServerSide, 2},
		{"filters, all in the lower half", &asServed{namespaces: []string{low}, filters: true}, false, listwatch.ServerSide, 2},
		{"filters, all in the upper half", &asServed{namespaces: []string{high}, filters: true}, false, listwatch.ServerSide, 2},
		{"sends the same for both, first of the lower half", &asServed{namespaces: []string{low, high}}, true, listwatch.ClientSide, 2},
		{"sends the same for both, first of the upper half", &asServed{namespaces: []string{high, low}}, true, listwatch.ClientSide, 1},
		{"sends everything", &asServed{namespaces: []string{low, high}, ignoresLimit: true}, true, listwatch.ClientSide, 1},
		{"sends everything, all in the lower half", &asServed{namespaces: []string{low, low}, ignoresLimit: true}, true, listwatch.ClientSide, 2},
		{"says so", &asServed{echoes: true}, false, listwatch.ServerSide, 1},
		{"has nothing, and filters pods", &asServed{}, true, listwatch.ServerSide, 2},
		{"has nothing, and does not filter pods", &asServed{}, false, listwatch.ClientSide, 2},
		{"is not there, and filters pods", &asServed{err: apierrors.NewNotFound(berths.GroupResource(), "")}, true, listwatch.ServerSide, 1},
		{"cannot be asked", &asServed{err: errCutOff}, true, listwatch.ClientSide, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, pool, _ := newTestProber(t, &apiServer{shards: test.pods})
			for range 2 { // the second time from memory
				mode, known := p.Mode(t.Context(), berth, test.server)
				if mode != test.want || known != (test.server.err != errCutOff) {
					t.Errorf("filtered by the %s, known %t; want %s, and to know unless it was cut off", mode, known, test.want)
				}
			}
			if got := len(test.server.asked); got != test.lists {
				t.Errorf("took %d lists, want %d", got, test.lists)
			}
			for _, o := range test.server.asked {
				if o.Limit != 1 || o.ResourceVersion != "" {
					t.Errorf("asked for %d objects at version %q: a server would send more than one", o.Limit, o.ResourceVersion)
				}
			}
			if got := pool.Modes()[berths]; got != test.want {
				t.Errorf("the mode is reported as %s, want %s", got, test.want)
			}
		})
	}
}

// TestModeByReader has two readers of a resource, only one of which passes the selector on. Each is
// judged by itself, and the reported mode is that clients filter.
func TestModeByReader(t *testing.T) {
	p, pool, _ := newTestProber(t, &apiServer{})
	metadata, typed := listwatch.Form{Resource: berths}, listwatch.Form{Resource: berths, Object: unstructuredType}
	both := []string{inHalf(t, 0), inHalf(t, 1)}
	for range 2 {
		if !p.Honoured(t.Context(), metadata, &asServed{namespaces: both, filters: true}) {
			t.Error("a reader that passes the selector on is said not to")
		}
		if p.Honoured(t.Context(), typed, &asServed{namespaces: both}) {
			t.Error("a reader that drops the selector is said to pass it on")
		}
	}
	if got := pool.Modes()[berths]; got != listwatch.ClientSide {
		t.Errorf("the mode is reported as %s", got)
	}
}

func TestOneProbeForAllWhoWait(t *testing.T) {
	s := &apiServer{shards: true}
	p, _, _ := newTestProber(t, s)
	var asking sync.WaitGroup
	for range 16 {
		asking.Go(func() {
			if !p.Honoured(t.Context(), listwatch.Form{Resource: configMaps}, nil) {
				t.Error("server is said not to filter")
			}
		})
	}
	asking.Wait()
	if got := len(s.requests()); got != 1 {
		t.Errorf("took %d requests, want 1", got)
	}
}

// TestProbeThatIsGivenUp checks that a probe cut short by the end of its shard says nothing about
// the server. Otherwise other shards would read unfiltered for the length of a watch.
func TestProbeThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiServer{shards: true, hangs: true}
		p, pool, _ := newTestProber(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		go p.Honoured(ctx, listwatch.Form{Resource: configMaps}, nil)
		synctest.Wait()
		answer := make(chan bool, 1)
		go func() { answer <- p.Honoured(t.Context(), listwatch.Form{Resource: configMaps}, nil) }()
		s.set(func(s *apiServer) { s.hangs = false })
		cancel()
		if !<-answer {
			t.Error("server is said not to filter because another shard ended while it asked")
		}
		if diff := cmp.Diff(map[schema.GroupVersionResource]listwatch.Mode{configMaps: listwatch.ServerSide}, pool.Modes()); diff != "" {
			t.Errorf("modes (-want +got):\n%s", diff)
		}
	})
}

// TestWaitingForAProbeEnds checks that a shard can stop while another shard's probe hangs.
func TestWaitingForAProbeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiServer{hangs: true}
		p, _, _ := newTestProber(t, s)
		asking, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		go p.Honoured(asking, listwatch.Form{Resource: configMaps}, nil)
		synctest.Wait()
		waiting, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		ended := make(chan struct{})
		go func() { defer close(ended); p.Honoured(waiting, listwatch.Form{Resource: configMaps}, nil) }()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("still waits for another one's probe after it was stopped")
		}
	})
}
