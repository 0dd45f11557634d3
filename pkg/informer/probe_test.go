package informer

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
)

func newTestProber(t *testing.T, s *apiServer) (*prober, *Pool, *clocktesting.FakePassiveClock) {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(time.Now())
	pool := newTestPool(t, s, clock, 0)
	return pool.prober, pool, clock
}

// checkProbe asks whether the server filters, and counts the requests that it takes.
func checkProbe(t *testing.T, p *prober, s *apiServer, gvr schema.GroupVersionResource, want bool, requests int) {
	t.Helper()
	if got := p.honoured(t.Context(), gvr); got != want {
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
		want   Mode
	}{
		{"a server that echoes the selector", &apiServer{shards: true}, ServerSide},
		{"a server that does not", &apiServer{}, ClientSide},
		{"a server that refuses", &apiServer{shards: true, fails: http.StatusInternalServerError}, ClientSide},
		{"a server that does not let us", &apiServer{shards: true, fails: http.StatusForbidden}, ClientSide},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, pool, _ := newTestProber(t, test.server)
			checkProbe(t, p, test.server, configMaps, test.want == ServerSide, 1)
			want := map[schema.GroupVersionResource]Mode{configMaps: test.want}
			if diff := cmp.Diff(want, pool.Modes()); diff != "" {
				t.Errorf("modes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestProbeIsCheap checks the request: one object at most, from the server's cache, and
// a selector that nothing but the echo depends on.
func TestProbeIsCheap(t *testing.T) {
	s := &apiServer{shards: true}
	p, _, _ := newTestProber(t, s)
	p.honoured(t.Context(), schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"})
	requests := s.requests()
	if len(requests) != 1 {
		t.Fatalf("made %d requests, want 1", len(requests))
	}
	if got := requests[0].URL.Path; got != "/apis/apps/v1/deployments" {
		t.Errorf("asked %s", got)
	}
	got := requests[0].URL.Query()
	if got.Get("limit") != "1" || got.Get("resourceVersion") != "0" || got.Get("shardSelector") != probeSelector || got.Has("watch") {
		t.Errorf("asked for %v", got)
	}
}

func TestProbeIsRepeated(t *testing.T) {
	s := &apiServer{shards: true}
	p, pool, clock := newTestProber(t, s)
	checkProbe(t, p, s, configMaps, true, 1)

	s.set(func(s *apiServer) { s.shards = false })
	clock.SetTime(clock.Now().Add(probeFor - time.Nanosecond))
	checkProbe(t, p, s, configMaps, true, 0)
	clock.SetTime(clock.Now().Add(time.Nanosecond))
	checkProbe(t, p, s, configMaps, false, 1)
	if got := pool.Modes()[configMaps]; got != ClientSide {
		t.Errorf("mode is %s after the server has changed", got)
	}

	s.set(func(s *apiServer) { s.shards, s.fails = true, http.StatusServiceUnavailable })
	clock.SetTime(clock.Now().Add(probeFor))
	checkProbe(t, p, s, configMaps, false, 1)
	s.set(func(s *apiServer) { s.fails = 0 })
	checkProbe(t, p, s, configMaps, false, 0)
	clock.SetTime(clock.Now().Add(probeFor))
	checkProbe(t, p, s, configMaps, true, 1)
}

// TestFailedProbeChangesNothing: a server that refuses, as one does that has just started, has not
// said that it filters no more. It is asked again soon, and believed when it answers.
func TestFailedProbeChangesNothing(t *testing.T) {
	s := &apiServer{shards: true}
	p, pool, clock := newTestProber(t, s)
	checkProbe(t, p, s, configMaps, true, 1)
	for _, fails := range []int{http.StatusServiceUnavailable, http.StatusInternalServerError, http.StatusForbidden} {
		s.set(func(s *apiServer) { s.fails = fails })
		clock.SetTime(clock.Now().Add(probeFor))
		checkProbe(t, p, s, configMaps, true, 1)
		checkProbe(t, p, s, configMaps, true, 0)
		if got := pool.Modes()[configMaps]; got != ServerSide {
			t.Errorf("mode is %s after a probe that was answered with status %d", got, fails)
		}
	}
	s.set(func(s *apiServer) { s.shards, s.fails = false, 0 })
	clock.SetTime(clock.Now().Add(probeAgain))
	checkProbe(t, p, s, configMaps, false, 1)

	s.set(func(s *apiServer) { s.shards, s.fails = true, http.StatusServiceUnavailable })
	clock.SetTime(clock.Now().Add(probeFor))
	checkProbe(t, p, s, configMaps, false, 1)
	s.set(func(s *apiServer) { s.fails = 0 })
	clock.SetTime(clock.Now().Add(probeAgain))
	checkProbe(t, p, s, configMaps, true, 1)
}

// TestPodsAnswerForCustomResources has resources without a typed list, which never echo
// the selector, take the answer of pods.
func TestPodsAnswerForCustomResources(t *testing.T) {
	s := &apiServer{shards: true}
	p, _, _ := newTestProber(t, s)
	if !p.honoured(t.Context(), berths) {
		t.Error("server is said not to filter custom resources")
	}
	if requests := s.requests(); len(requests) != 1 || requests[0].URL.Path != "/api/v1/pods" {
		t.Errorf("asked %v, want a list of pods", requests)
	}
	checkProbe(t, p, s, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, true, 0)
}

func TestOneProbeForAllWhoWait(t *testing.T) {
	s := &apiServer{shards: true}
	p, _, _ := newTestProber(t, s)
	var asking sync.WaitGroup
	for range 16 {
		asking.Go(func() {
			if !p.honoured(t.Context(), configMaps) {
				t.Error("server is said not to filter")
			}
		})
	}
	asking.Wait()
	if got := len(s.requests()); got != 1 {
		t.Errorf("took %d requests, want 1", got)
	}
}

// TestProbeThatIsGivenUp wants the end of the shard that happens to ask to say nothing
// about the server: others would go without its filter for the length of a watch.
func TestProbeThatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiServer{shards: true, hangs: true}
		p, pool, _ := newTestProber(t, s)
		ctx, cancel := context.WithCancel(t.Context())
		go p.honoured(ctx, configMaps)
		synctest.Wait()
		answer := make(chan bool, 1)
		go func() { answer <- p.honoured(t.Context(), configMaps) }()
		s.set(func(s *apiServer) { s.hangs = false })
		cancel()
		if !<-answer {
			t.Error("server is said not to filter because another shard ended while it asked")
		}
		if diff := cmp.Diff(map[schema.GroupVersionResource]Mode{configMaps: ServerSide}, pool.Modes()); diff != "" {
			t.Errorf("modes (-want +got):\n%s", diff)
		}
	})
}

// TestWaitingForAProbeEnds wants a shard to be able to stop while another one's probe
// hangs.
func TestWaitingForAProbeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &apiServer{hangs: true}
		p, _, _ := newTestProber(t, s)
		asking, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		go p.honoured(asking, configMaps)
		synctest.Wait()
		waiting, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		ended := make(chan struct{})
		go func() { defer close(ended); p.honoured(waiting, configMaps) }()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("still waits for another one's probe after it was stopped")
		}
	})
}
