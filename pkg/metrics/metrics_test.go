package metrics

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestFamilies holds the list of families against what is gathered of a member that runs, each way,
// under a prefix of the caller's; and the names against Prometheus' conventions.
func TestFamilies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := busy(t, Options{Fleet: "bosun", Prefix: "my_fleet2"})
		m.Count(fleet.Event{
			ID:          shard.ID{Ring: "namespaces", Name: "00"},
			Event:       election.Event{Type: fleet.EventRunning},
			Acquisition: &fleet.Acquisition{How: fleet.HowTakeover, Forgot: []string{"c"}},
		})
		found, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]Family{}
		for _, f := range found {
			labels := []string{}
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, l.GetName())
			}
			kind := strings.ToLower(f.GetType().String())
			got[f.GetName()] = Family{f.GetName(), kind, f.GetHelp(), labels}
		}
		for _, want := range m.Families() {
			f, there := got[want.Name]
			slices.Sort(want.Labels)
			if !there || f.Kind != want.Kind || f.Help != want.Help || !slices.Equal(f.Labels, want.Labels) {
				t.Errorf("%s: gathered is %v, want %v", want.Name, f, want)
			}
			if !strings.HasPrefix(want.Name, "my_fleet2_") {
				t.Errorf("%s does not begin with my_fleet2_", want.Name)
			}
			delete(got, want.Name)
		}
		for name := range got {
			t.Errorf("%s is gathered, and Families does not have it", name)
		}
		problems, err := testutil.GatherAndLint(registry)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
}

// TestStates reads what a member says of itself.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, registry := busy(t, Options{Fleet: "flotilla"})
		all := gathered(t, registry)
		for _, want := range []value{
			of(2, "shard_owned"),
			of(2, "shard_desired"),
			of(2, "shard_state", "state", "running"),
			of(2, "shard_objects"),
			of(1, "ring_members", "ring", "namespaces"),
			of(2, "ring_shards", "ring", "namespaces"),
			of(1, "ring_load_ratio", "ring", "namespaces"),
			of(1, "ring_load_ratio_least", "ring", "namespaces"),
			of(1, "plan_generation"),
			of(1, "fleet_members", "state", "active"),
			of(1, "fleet_members"),
			of(1, "leader_lock_held", "lease", "stock"),
			of(1, "leader_lock_holder_live", "lease", "stock"),
			of(1, "fence_policy"),
			of(3, "informer_discarded_total"),
			of(4, "informer_unseen_updates_total"),
			of(1, "informer_resources", "filtered_by", "server"),
			of(1, "informer_resources", "filtered_by", "process"),
			of(1, "informer_failing"),
			of(2, "shard_acquisitions_total", "how", "vacant", "reason", "new", "result", "running"),
		} {
			if got := sum(all["flotilla_"+want.name], want.labels...); got != want.value {
				t.Errorf("%s%v is %v, want %v", want.name, want.labels, got, want.value)
			}
		}
	})
}

// TestFirstEventIsAnIncrease checks that counters of rings begin at 0: to Prometheus, a series that
// begins with 1 has not increased.
func TestFirstEventIsAnIncrease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, registry := busy(t, Options{Fleet: "flotilla"})
		all := gathered(t, registry)
		require := func(name string, labels map[string]string) {
			t.Helper()
			labels["ring"] = "namespaces"
			if !slices.ContainsFunc(all[name], func(s series) bool { return maps.Equal(s.labels, labels) }) {
				t.Errorf("there is no %s%v", name, labels)
			}
		}
		for _, reason := range []string{
			"acquired", "prepared", "warm", "cold", "ready", "refused", "overdue", "drained", "unwanted", "work-returned",
			"revoked", "renew-deadline", "no-right", "other-holder", "cleared", "term-changed",
		} {
			require("flotilla_shard_transitions_total", map[string]string{"reason": reason})
		}
		for how, reasons := range map[string][]string{
			"handoff": {"rebalance", "leaving", "plan"}, "takeover": {"expired", "overdue"}, "vacant": {"new", "released"},
		} {
			require("flotilla_shard_unowned_seconds_count", map[string]string{"how": how})
			for _, reason := range reasons {
				for _, result := range []string{"running", "refused", "abandoned"} {
					require("flotilla_shard_acquisitions_total", map[string]string{"how": how, "reason": reason, "result": result})
				}
			}
		}
	})
}

// TestTwoFleets has the members of two fleets in one process, in every way that keeps their series
// apart, and counts an event of the first.
func TestTwoFleets(t *testing.T) {
	one, other := prometheus.NewPedanticRegistry(), prometheus.NewPedanticRegistry()
	labelled := func(name string) prometheus.Registerer {
		return prometheus.WrapRegistererWith(prometheus.Labels{"fleet": name}, one)
	}
	for name, tc := range map[string]struct {
		options [2]Options
		to      [2]prometheus.Registerer
	}{
		"prefixes":   {[2]Options{{Fleet: "a", Prefix: "a"}, {Fleet: "b", Prefix: "b"}}, [2]prometheus.Registerer{one, one}},
		"registries": {[2]Options{{Fleet: "a", Prefix: "x"}, {Fleet: "b", Prefix: "x"}}, [2]prometheus.Registerer{one, other}},
		"labels":     {[2]Options{{Fleet: "a"}, {Fleet: "b"}}, [2]prometheus.Registerer{labelled("a"), labelled("b")}},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := mustNew(t, tc.options[0]), mustNew(t, tc.options[1])
			for i, m := range []*Metrics{first, second} {
				source := Source{Member: idle(t, tc.options[i].Fleet, m)}
				if err := m.Register(tc.to[i], source); err != nil {
					t.Fatal(err)
				}
				defer tc.to[i].Unregister(m)
			}
			first.Count(fleet.Event{Event: election.Event{Type: fleet.EventPlanRefused, Name: "a-plan"}})
			for m, want := range map[*Metrics]float64{first: 1, second: 0} {
				if got := testutil.ToFloat64(m.plans.WithLabelValues("plan-refused")); got != want {
					t.Errorf("fleet %s has refused %v plans, want %v", m.options.Fleet, got, want)
				}
			}
			for _, registry := range []prometheus.Gatherer{one, other} {
				if _, err := registry.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestRegisterRefuses has the ways in which registering fails, and what the error says.
func TestRegisterRefuses(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	first, second := mustNew(t, Options{Fleet: "one"}), mustNew(t, Options{Fleet: "two"})
	source := Source{Member: idle(t, "one", first)}
	complain(t, first.Register(registry, Source{}), "fleet one", "no Member")
	if err := first.Register(registry, source); err != nil {
		t.Fatal(err)
	}
	complain(t, first.Register(prometheus.NewRegistry(), source), "fleet one", "registered already")
	complain(t, second.Register(registry, source), "fleet two", `prefix "flotilla"`, "duplicate")
	if all := gathered(t, registry)["flotilla_fleet_stopped"]; len(all) != 1 {
		t.Errorf("the first fleet has %v after the second was refused", all)
	}
	// What a registry has refused, another may take.
	if err := second.Register(prometheus.NewPedanticRegistry(), source); err != nil {
		t.Error(err)
	}
}

// TestOptionsRefused has options of which no metrics can be made.
func TestOptionsRefused(t *testing.T) {
	for _, prefix := range []string{"2fleets", "my-fleet", "my:fleet", "my fleet", "fleet_", "_", "_a", "flottille_é", "a\n"} {
		_, err := New(Options{Fleet: "bosun", Prefix: prefix})
		complain(t, err, "fleet bosun", "Prefix", "cannot begin the name of a metric")
	}
	_, err := New(Options{Prefix: "bosun"})
	complain(t, err, "Fleet is empty")
	for _, prefix := range []string{"", "f", "F2", "my_fleet", "a__b"} {
		if _, err := New(Options{Fleet: "bosun", Prefix: prefix}); err != nil {
			t.Error(err)
		}
	}
}

func complain(t *testing.T, err error, want ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", want)
		return
	}
	for _, part := range want {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %q, want %q in it", err, part)
		}
	}
}

// TestDisabled leaves out a family that is read and two that are counted, and nothing else.
func TestDisabled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disabled := []string{
			"flotilla_shard_owned", "flotilla_plan_changes_total", "flotilla_shard_unowned_seconds",
		}
		_, all := busy(t, Options{Fleet: "flotilla"})
		m, registry := busy(t, Options{Fleet: "flotilla", Disabled: append(disabled, "other_family")})
		want := gathered(t, all)
		for name := range want {
			if slices.ContainsFunc(disabled, func(d string) bool { return strings.HasPrefix(name, d) }) {
				delete(want, name)
			}
		}
		got := slices.Sorted(maps.Keys(gathered(t, registry)))
		if want := slices.Sorted(maps.Keys(want)); !slices.Equal(got, want) {
			t.Errorf("%q\nwant\n%q", got, want)
		}
		for _, f := range m.Families() {
			if slices.Contains(disabled, f.Name) {
				t.Errorf("Families has %s, which is disabled", f.Name)
			}
		}
	})
}

// TestWithoutInformers: a program may keep its caches elsewhere.
func TestWithoutInformers(t *testing.T) {
	m, registry := mustNew(t, Options{Fleet: "flotilla"}), prometheus.NewPedanticRegistry()
	if err := m.Register(registry, Source{Member: idle(t, "flotilla", m)}); err != nil {
		t.Fatal(err)
	}
	all := gathered(t, registry)
	for name := range all {
		if strings.HasPrefix(name, "flotilla_informer_") {
			t.Errorf("%s is there without informers", name)
		}
	}
	if got := all["flotilla_fence_policy"]; len(got) != 1 || got[0].value != 0 {
		t.Errorf("flotilla_fence_policy is %v, want 0: nobody enforces anything", got)
	}
}
