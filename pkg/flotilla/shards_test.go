package flotilla

import (
	"context"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/fleet/planner"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// wholeShards are those of a program that builds each shard as a whole.
func wholeShards(t *testing.T) Shards {
	t.Helper()
	ranges, err := shard.EqualShards("ranges", 2)
	if err != nil {
		t.Fatal(err)
	}
	ring := shard.Ring{
		Name: "ranges", Scope: shard.ScopeNamespaced, Controllers: []string{"c"}, Shards: ranges,
	}
	known := skew.Controller{Name: "c", Scopes: []shard.Scope{shard.ScopeNamespaced}}
	return Shards{
		Plan:      shard.Plan{Generation: 1, Rings: []shard.Ring{ring}},
		Catalogue: skew.Build{Version: "v1", Controllers: []skew.Controller{known}},
		Check:     func(shard.Plan) error { return nil },
		Forgets:   func(string) bool { return true },
		Expect:    func([]shard.Range) {},
		Build:     func(context.Context, fleet.Work) (fleet.Instance, error) { return nil, nil },
	}
}

func TestAFleetRunsControllersOrShards(t *testing.T) {
	f := newFleet(t, nil)
	f.Shards(wholeShards(t))
	f.Namespaced("issuer", nothing)
	both := `both Shards and controller "issuer"`
	if _, err := f.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), both) {
		t.Errorf("with both the error is %v", err)
	}
	f = newFleet(t, func(o *Options) { o.Outside = func(Access) {} })
	f.Shards(wholeShards(t))
	if err := f.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Options.Outside") {
		t.Errorf("with Outside, which would receive nothing, the error is %v", err)
	}
	unusable := wholeShards(t)
	unusable.Plan.Generation = 0
	f = newFleet(t, nil)
	f.Shards(unusable)
	_, err := f.Prepare(t.Context())
	if err == nil || !strings.Contains(err.Error(), "plan") || f.Member() != nil {
		t.Errorf("with an invalid plan the error is %v and the member %v", err, f.Member())
	}
}

func TestMistakesWithShardsPanic(t *testing.T) {
	f := newFleet(t, nil)
	none := wholeShards(t)
	none.Build = nil
	if !panics(func() { f.Shards(none) }) {
		t.Error("Shards without Build does not panic")
	}
	f.Shards(wholeShards(t))
	if !panics(func() { f.Shards(wholeShards(t)) }) {
		t.Error("the second Shards does not panic")
	}
	f = newFleet(t, nil)
	f.Singleton("issuer", nothing)
	prepared(t, f)
	if !panics(func() { f.Shards(wholeShards(t)) }) {
		t.Error("Shards after Prepare does not panic")
	}
}

// prepared returns the member of a fleet that ends with the test.
func prepared(t *testing.T, f *Fleet) *fleet.Member {
	t.Helper()
	member, err := f.Prepare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Run(t.Context()); err != nil { // the context has ended
			t.Error(err)
		}
	})
	return member
}

func TestPreparedMemberIsTheOneThatRuns(t *testing.T) {
	f := newFleet(t, nil)
	f.Shards(wholeShards(t))
	member := prepared(t, f)
	if member == nil || f.Member() != member {
		t.Errorf("Prepare returned %p, and Member %p", member, f.Member())
	}
	if _, err := f.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "before") {
		t.Errorf("the second Prepare returned %v", err)
	}
}

// TestAllOptionsReachTheMember finds an option, or a field of Shards, that is not passed on or is
// confused with another: no two of one type have the same value.
func TestAllOptionsReachTheMember(t *testing.T) {
	timing := election.Timing{
		LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 10 * time.Second,
	}
	f := newFleetAt(t, "https://127.0.0.1:1/api/clusters/c-1/", func(o *Options) {
		o.Fleet, o.Namespace, o.Member = "fleet", "namespace", "member"
		o.Node, o.Zone, o.Standby = "node", "zone", true
		o.Rings, o.LeaderLocks = []string{"ranges"}, []string{"leader-lock"}
		o.LeaderLockDelay, o.ReplanInterval, o.RebalanceDelay = 1*time.Second, 2*time.Second, 3*time.Second
		o.FenceDelay, o.ShutdownTimeout, o.HandoffTimeout = 4*time.Second, 5*time.Second, 6*time.Second
		o.Handoffs, o.Timing = 7, timing
		o.Enforced = func() bool { return true }
		o.Memory = func() leaseapi.Memory { return leaseapi.Memory{} }
		o.Use = func() leaseapi.Use { return leaseapi.Use{} }
	})
	shards, leases := wholeShards(t), leasetest.NewStore().Client("a")
	config := reflect.ValueOf(f.configure(shards, leases))
	want := reflect.ValueOf(fleet.Config{
		Fleet: "fleet", Member: "member", Node: "node", Zone: "zone",
		Plan: shards.Plan, Catalogue: shards.Catalogue,
		Rings: []string{"ranges"}, LeaderLocks: []string{"leader-lock"}, Leases: leases,
		ServerPath:      "/api/clusters/c-1",
		LeaderLockDelay: 1 * time.Second, Replanning: planner.Replanning{Interval: 2 * time.Second},
		RebalanceDelay: 3 * time.Second, FenceDelay: 4 * time.Second,
		ShutdownTimeout: 5 * time.Second, HandoffTimeout: 6 * time.Second,
		Handoffs: 7, Timing: timing, Standby: true, Clock: f.options.Clock,
	})
	for i := range config.NumField() {
		name, elsewhere := config.Type().Field(i).Name, []string{"CensusInterval", "Observe"}
		got := config.Field(i)
		if got.IsZero() && !slices.Contains(elsewhere, name) {
			t.Errorf("%s is not passed on", name)
		}
		// Functions have different types, so that none can be confused with another.
		if got.Kind() != reflect.Func && !reflect.DeepEqual(got.Interface(), want.Field(i).Interface()) {
			t.Errorf("%s is %v, want %v", name, got, want.Field(i))
		}
	}
}

// TestMetricsLookLikeThoseOfTheProgram gathers the metrics of a member that does not run.
func TestMetricsLookLikeThoseOfTheProgram(t *testing.T) {
	registry := prometheus.NewRegistry()
	f := newFleet(t, func(o *Options) {
		o.Registerer, o.MetricPrefix, o.MetricStability = registry, "bosun", "ALPHA"
		o.DisabledMetrics = []string{"bosun_fleet_stopped"}
		o.Enforced = func() bool { return true }
	})
	f.Shards(wholeShards(t))
	prepared(t, f)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	enforced, looks := 0.0, regexp.MustCompile(`^bosun_[a-z_]+ \[ALPHA\] `)
	for _, family := range families {
		names = append(names, family.GetName())
		if all := family.GetName() + " " + family.GetHelp(); !looks.MatchString(all) {
			t.Error(all)
		}
		if family.GetName() == "bosun_fence_policy" {
			enforced = family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if slices.Contains(names, "bosun_fleet_stopped") || enforced != 1 {
		t.Errorf("enforced is %v, and there are %q", enforced, names)
	}
}

func TestEventsGoWhereTheProgramSays(t *testing.T) {
	own := record.NewFakeRecorder(1)
	f := newFleet(t, func(o *Options) { o.Events = own })
	if sent, _ := f.events(nil); sent != own {
		t.Errorf("events go to %v", sent)
	}
}
