package ceiling_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/test/bench/ceiling"
)

// TestOrder holds back answers on which other requests depend, and requires that those wait.
func TestOrder(t *testing.T) {
	set := uid("a", 1)
	lines := []string{
		create(1, "system:serviceaccount:kube-system:service-account-controller", "", "serviceaccounts", "ServiceAccount", "default", uid("a", 8), nil),
		create(1, deployments, "apps", "replicasets", "ReplicaSet", "s", set, nil),
		event(2, deployments, "patch", path("apps", "replicasets")+"/s", object{"apiGroup": "apps", "resource": "replicasets", "namespace": "ns", "name": "s"}, object{}, nil),
	}
	for i := range 3 {
		lines = append(lines, create(3, replicaSets, "", "pods", "Pod", fmt.Sprintf("p-%d", i), uid("b", i), object{"metadata": owned("ReplicaSet", "s", set)}))
	}
	var mu sync.Mutex
	done := map[string]bool{}
	var patched chan struct{}
	s := serve(t, nil)
	s.answer = func(g got) (int, string) {
		if strings.HasSuffix(g.uri, "/serviceaccounts") {
			<-patched // so that the pods would be early without it
		}
		mu.Lock()
		defer mu.Unlock()
		if g.method == http.MethodPatch {
			defer close(patched)
		}
		need := ""
		switch {
		case strings.HasSuffix(g.uri, "/pods"):
			if !done[path("", "serviceaccounts")] {
				return http.StatusForbidden, "NoServiceAccount"
			}
			need = path("apps", "replicasets")
		case g.method == http.MethodPatch:
			need = path("apps", "replicasets")
		}
		if need != "" && !done[need] {
			return http.StatusInternalServerError, "TooEarly"
		}
		done[g.uri] = true
		return 0, ""
	}
	for range 50 {
		clear(done)
		patched = make(chan struct{})
		if out, err := record(t, lines...).Replay(t.Context(), s.config(), ceiling.Options{}); err != nil {
			t.Fatalf("%+v: %v", out, err)
		}
	}
}

// TestBarriers has three parts whose requests are independent, and a server that refuses a request
// before the whole previous part has been answered.
func TestBarriers(t *testing.T) {
	const each = 8
	lines := []string{create(1, deployments, "", "configmaps", "ConfigMap", "before", uid("a", 0), nil)}
	for part := range 3 {
		for i := range each {
			lines = append(lines, create(10*(part+1), []string{deployments, replicaSets}[i%2], "", "configmaps", "ConfigMap", fmt.Sprintf("p%d-%d", part, i), uid("b", part*each+i), nil))
		}
	}
	var mu sync.Mutex
	answered, ready := 0, false
	s := serve(t, func(g got) (int, string) {
		name, _ := at(t, g.body, "metadata", "name").(string)
		part := 0
		if _, err := fmt.Sscanf(name, "p%d-", &part); err != nil {
			return 0, "" // before the work
		}
		mu.Lock()
		early := !ready || answered < part*each
		mu.Unlock()
		for range 1000 {
			runtime.Gosched() // others of the part, and of later ones, may come meanwhile
		}
		mu.Lock()
		defer mu.Unlock()
		answered++
		if early {
			return http.StatusConflict, "TooEarly"
		}
		return 0, ""
	})
	o := ceiling.Options{Since: time.Unix(10, 0), Barriers: []time.Time{time.Unix(20, 0), time.Unix(30, 0)}, Ready: func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		ready = len(s.all()) == 1 // from before
		return nil
	}}
	out, err := record(t, lines...).Replay(t.Context(), s.config(), o)
	if err != nil || out.Prepared != 1 || out.Requests != 3*each || len(out.Parts) != 3 {
		t.Fatalf("%+v, %v", out, err)
	}
	sum := 0.0
	for _, part := range out.Parts {
		sum += part
	}
	if sum < out.Seconds*0.999 || sum > out.Seconds*1.001 {
		t.Errorf("parts %v, which are not the %v s of all", out.Parts, out.Seconds)
	}
}

func TestBarriersAtFault(t *testing.T) {
	for name, o := range map[string]ceiling.Options{
		"out of order": {Barriers: []time.Time{time.Unix(20, 0), time.Unix(10, 0)}},
		"before Since": {Since: time.Unix(20, 0), Barriers: []time.Time{time.Unix(10, 0)}},
	} {
		if _, err := record(t).Replay(t.Context(), serve(t, nil).config(), o); err == nil || !strings.Contains(err.Error(), "Barriers") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLimitsAreOfTheWork has more requests before the work than the limits let through in the
// test's time.
func TestLimitsAreOfTheWork(t *testing.T) {
	var lines []string
	for i := range 50 {
		lines = append(lines, create(1, deployments, "", "configmaps", "ConfigMap", fmt.Sprint("c-", i), uid("a", i), nil))
	}
	lines = append(lines, create(10, deployments, "", "configmaps", "ConfigMap", "last", uid("b", 0), nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// A deadline would not do: limiters fail at once if they would exceed it.
	defer time.AfterFunc(20*time.Second, cancel).Stop()
	s := serve(t, nil)
	out, err := record(t, lines...).Replay(ctx, s.config(), ceiling.Options{Since: time.Unix(10, 0), QPS: 0.1, Burst: 1})
	if err != nil || out.Prepared != 50 || out.Requests != 1 {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestWorkers has a server that answers only when as many requests have come as there are workers.
// There are never more.
func TestWorkers(t *testing.T) {
	const workers, each = 4, 5
	var lines []string
	for i := range workers * each {
		lines = append(lines, create(1, []string{deployments, replicaSets}[i%2], "", "configmaps", "ConfigMap", fmt.Sprint("c-", i), uid("a", i), nil))
	}
	var mu sync.Mutex
	now, most, here := 0, 0, 0
	full := make(chan struct{})
	s := serve(t, func(got) (int, string) {
		mu.Lock()
		now, here = now+1, here+1
		most = max(most, here)
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			here--
		}()
		barrier, last := full, now == workers
		if last {
			now, full = 0, make(chan struct{})
		}
		mu.Unlock()
		if last {
			for range 10_000 {
				runtime.Gosched() // one too many would come here
			}
			close(barrier)
		}
		select {
		case <-barrier:
			return 0, ""
		case <-t.Context().Done():
			return http.StatusServiceUnavailable, "Late"
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if out, err := record(t, lines...).Replay(ctx, s.config(), ceiling.Options{Workers: workers}); err != nil || most != workers {
		t.Errorf("%d at a time, want %d; %+v, %v", most, workers, out, err)
	}
}

func TestFailures(t *testing.T) {
	for name, test := range map[string]struct {
		all, bad int
		fails    bool
	}{"one in a hundred": {100, 1, false}, "two in a hundred": {100, 2, true}, "the only one": {1, 1, true}, "none": {0, 0, false}} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			for i := range test.all {
				lines = append(lines, create(1, deployments, "", "configmaps", "ConfigMap", fmt.Sprint("c-", i), uid("a", i), nil))
			}
			var mu sync.Mutex
			bad := 0
			s := serve(t, func(got) (int, string) {
				mu.Lock()
				defer mu.Unlock()
				if bad++; bad > test.bad {
					return 0, ""
				}
				return http.StatusUnprocessableEntity, "Invalid"
			})
			out, err := record(t, lines...).Replay(t.Context(), s.config(), ceiling.Options{})
			if (err != nil) != test.fails {
				t.Errorf("error %v", err)
			}
			if out.Failed != test.bad || out.Requests != test.all || test.bad > 0 && out.Failures["create configmaps 422 Invalid"] != test.bad {
				t.Errorf("outcome %+v", out)
			}
		})
	}
}

// TestAgain reuses a name: the create waits until the old object is gone. Otherwise a conflict is a
// failure, except in preparation.
func TestAgain(t *testing.T) {
	again := create(3, replicaSets, "", "pods", "Pod", "p", uid("a", 2), nil)
	remove := event(2, replicaSets, "delete", path("", "pods")+"/p", object{"resource": "pods", "namespace": "ns", "name": "p"}, nil, nil)
	busy := 3
	s := serve(t, func(g got) (int, string) {
		if g.method == http.MethodPost && busy > 0 {
			busy--
			return http.StatusConflict, "AlreadyExists"
		}
		return 0, ""
	})
	out, err := record(t, remove, again).Replay(t.Context(), s.config(), ceiling.Options{})
	if err != nil || out.Retries != 3 {
		t.Errorf("%+v, %v, want 3 retries", out, err)
	}
	busy = 1
	if out, err := record(t, again).Replay(t.Context(), s.config(), ceiling.Options{}); err == nil {
		t.Errorf("%+v: creating an existing object was no failure", out)
	}
	busy = 1
	out, err = record(t, again).Replay(t.Context(), s.config(), ceiling.Options{Since: time.Unix(4, 0)})
	if err != nil || out.Prepared != 1 || out.Requests != 0 {
		t.Errorf("%+v, %v, want one request prepared", out, err)
	}
}

// TestLimit sends five requests at 50 a second and no burst: four waits of 20 ms. The other
// controller has its own limit.
func TestLimit(t *testing.T) {
	var lines []string
	for i := range 5 {
		lines = append(lines, create(1, deployments, "", "configmaps", "ConfigMap", fmt.Sprint("c-", i), uid("a", i), nil),
			create(1, replicaSets, "", "configmaps", "ConfigMap", fmt.Sprint("r-", i), uid("b", i), nil))
	}
	s := serve(t, nil)
	out, err := record(t, lines...).Replay(t.Context(), s.config(), ceiling.Options{QPS: 50, Burst: 1})
	if err != nil || out.Seconds < 0.079 {
		t.Errorf("%+v, %v, want at least 80 ms", out, err)
	}
	if out.Controllers["deployment-controller"] != 5 || out.Controllers["replicaset-controller"] != 5 {
		t.Errorf("requests by controller: %v", out.Controllers)
	}
}

func TestEventsAreLeftOut(t *testing.T) {
	r := record(t, create(1, deployments, "", "events", "Event", "e", uid("a", 1), nil))
	for _, events := range []bool{false, true} {
		s := serve(t, nil)
		out, err := r.Replay(t.Context(), s.config(), ceiling.Options{Events: events})
		if err != nil || (out.Requests == 1) != events {
			t.Errorf("events %t: %+v, %v", events, out, err)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []ceiling.Options{{Workers: -1}, {QPS: -1}, {Burst: -1}, {QPS: 20}} {
		if _, err := record(t).Replay(t.Context(), serve(t, nil).config(), o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}
