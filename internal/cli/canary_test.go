package cli

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// versions gives each member a version that supports canaries, and publishes health for each.
func (l leases) versions(versions ...string) {
	for i, v := range versions {
		a := l[leaserecord.MemberLease(testFleet, fmt.Sprintf("flotilla-%d", i))].Annotations
		a[leaseapi.CatalogueAnnotation] = skew.Build{Version: v, Controllers: []skew.Controller{{Name: "job", Scopes: []shard.Scope{shard.ScopeNamespaced}}}}.Known().String()
		a[leaseapi.FormatAnnotation] = leaseapi.PlanFormat
		a[leaseapi.UseAnnotation] = fmt.Sprintf("100/%d/%d/%d/500/25000", 3+i, 20000*(i+1), 500*i)
		a[leaseapi.HealthAnnotation] = fmt.Sprintf("%d/%d/%d/250000", 100000, 2500*i, 50*(i+1))
	}
}

// written returns the plan on its Lease.
func (c *cluster) written(t *testing.T) shard.Plan {
	t.Helper()
	plan, err := c.plan(t)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func (c *cluster) namespace(t *testing.T, name string) {
	t.Helper()
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestCanaryBeginsAndEnds: start cuts the namespaces out and keeps everything else where it is, and
// promote keeps them where they are. abort and forget follow.
func TestCanaryBeginsAndEnds(t *testing.T) {
	for _, promote := range []bool{true, false} {
		l := newLeases(t, testPlan(t))
		l.versions("v1.37.1", "v1.38.0")
		c := newCluster(l)
		c.namespace(t, "team-a")
		writes := c.writes()
		run := func(args string) string {
			t.Helper()
			out, _, err := c.run(t, "", strings.Fields(args)...)
			if err != nil {
				t.Fatalf("%s: %v\n%s", args, err, out)
			}
			return out
		}
		if out := run("canary start --namespaces=team-b,team-a,team-b --by=alice --dry-run"); c.writes() != writes || !strings.Contains(out, "Dry run") {
			t.Errorf("the dry run wrote: %s", out)
		}
		c.conflicts(2, func() {})
		out := run("canary start --namespaces=team-b,team-a,team-b --by=alice")
		if !strings.Contains(out, "canary") || !strings.Contains(out, "namespace team-b does not exist (yet)") || strings.Contains(out, "team-a does not exist") {
			t.Errorf("start says\n%s", out)
		}
		plan := c.written(t)
		want := &shard.Canary{Version: "v1.38.0", Namespaces: []string{"team-a", "team-b"}, Since: "2027-01-02T03:04:05Z", By: "alice"}
		if !plan.Canary.Equal(want) {
			t.Errorf("the canary is %+v, want %+v", plan.Canary, want)
		}
		before := testPlan(t)
		for _, s := range plan.Shards() {
			if !s.Namespaced() {
				continue
			}
			i := slices.IndexFunc(before.Shards(), func(old shard.Shard) bool { return old.Namespaced() && old.Range.Overlaps(s.Range) })
			holder := leaserecord.MemberOf(*l[leaseapi.ShardLease(testFleet, before.Shards()[i].ID)].Spec.HolderIdentity)
			if s.Home != holder {
				t.Errorf("%s has the home %q, want its holder %s", s.ID, s.Home, holder)
			}
		}
		if !promote {
			run("canary abort --by=bob")
			plan = c.written(t)
			if plan.Canary == nil || !plan.Canary.Aborted || plan.Canary.By != "bob" || slices.ContainsFunc(plan.Shards(), plan.Tries) {
				t.Errorf("the canary is %+v, want it aborted", plan.Canary)
			}
			run("canary start --namespaces=team-c")
			if plan = c.written(t); plan.Canary.Aborted || plan.Canary.Namespaces[0] != "team-c" {
				t.Errorf("the canary is %+v, want a new one", plan.Canary)
			}
			run("canary abort")
			run("canary forget --force")
			if plan = c.written(t); plan.Canary != nil {
				t.Errorf("the canary is %+v, want none", plan.Canary)
			}
			continue
		}
		run("canary promote")
		if plan = c.written(t); plan.Canary != nil || plan.Generation != 5 {
			t.Errorf("generation %d has the canary %+v, want none", plan.Generation, plan.Canary)
		}
	}
}

// TestCanaryRefused checks that nothing is written, and that the error names what is wrong and what
// is allowed.
func TestCanaryRefused(t *testing.T) {
	running := func(aborted bool) func(leases) {
		return func(l leases) {
			plan := testPlan(t)
			edited := plan
			edited.Canary = &shard.Canary{Version: "v1.38.0", Namespaces: []string{"a"}, Since: "2027-01-02T00:00:00Z", By: "alice", Aborted: aborted}
			next, err := plan.Successor(edited)
			if err != nil {
				t.Fatal(err)
			}
			lease, err := leaseapi.WithPlan(testFleet, l[leaseapi.PlanLease(testFleet)], next)
			if err != nil {
				t.Fatal(err)
			}
			l[lease.Name] = lease
		}
	}
	many := "--namespaces=n"
	for i := range shard.MaxCanaryNamespaces {
		many += fmt.Sprintf(",n%d", i)
	}
	for _, test := range []struct {
		args     string
		versions string
		change   func(leases)
		want     string
	}{
		{"start", "v1.37.1 v1.38.0", nil, "--namespaces: must name at least one namespace"},
		{"start --namespaces=A", "v1.37.1 v1.38.0", nil, `--namespaces "A": must be the name of a namespace`},
		{"start " + many, "v1.37.1 v1.38.0", nil, "--namespaces: 65 are named: must be at most 64"},
		{"start --namespaces=a --weight=10%", "v1.37.1 v1.38.0", nil, "--weight: must not be given with --namespaces"},
		{"start --weight=10", "v1.37.1 v1.38.0", nil, `--weight "10": must be more than 0% and at most 50%`},
		{"start --weight=60%", "v1.37.1 v1.38.0", nil, `--weight "60%": must be more than 0% and at most 50%`},
		{"start --weight=10%5%", "v1.37.1 v1.38.0", nil, `--weight "10%5%": must be more than 0% and at most 50%`},
		{"start --weight=10%", "v1.37.1 v1.38.0", nil, "--weight: the weights of the namespaces are not known yet"},
		{"start --namespaces=a --version=1.38.0", "v1.37.1 v1.38.0", nil, `--version "1.38.0": must be a version as 'flotilla status' shows it`},
		{"start --namespaces=a --version=vnext", "v1.37.1 v1.38.0", nil, `--version "vnext": must be a version`},
		{"start --namespaces=a", "v1.37.1 v1.37.1", nil, "--version: must be given, because all live members have v1.37.1"},
		{"start --namespaces=a --version=v1.37.1", "v1.37.1 v1.37.1", nil, "--version v1.37.1: all live members have it: must be another one"},
		{"start --namespaces=a --version=v1.39.0", "v1.37.1 v1.38.0", nil, "--version v1.39.0: no live member has it: must be one of v1.37.1, v1.38.0"},
		{"start --namespaces=a", "v1.37.1", nil, "member flotilla-1 has a build that does not know canaries"},
		{"start --namespaces=b", "v1.37.1 v1.38.0", running(false), "a canary of v1.38.0 on a runs already since 2027-01-02T00:00:00Z by alice: promote or abort it first"},
		{"start --namespaces=b --version=v1.37.1", "v1.37.1 v1.38.0", running(true), "members of v1.38.0, which was aborted, are live and would get their share of everything"},
		{"start x", "v1.37.1 v1.38.0", nil, "unknown command"},
		{"promote", "v1.37.1 v1.38.0", nil, "no canary runs"},
		{"abort", "v1.37.1 v1.38.0", nil, "no canary runs"},
		{"forget", "v1.37.1 v1.38.0", nil, "there is no canary"},
		{"promote", "v1.37.1 v1.38.0", running(true), "has been aborted since 2027-01-02T00:00:00Z by alice"},
		{"abort", "v1.37.1 v1.38.0", running(true), "has been aborted"},
		{"forget", "v1.37.1 v1.38.0", running(false), "runs since 2027-01-02T00:00:00Z by alice: promote or abort it"},
		{"forget", "v1.37.1 v1.38.0", running(true), "members of v1.38.0, which was aborted, are live (flotilla-1) and would get their share of everything: replace them first, or let them have it with --force"},
		{"abort --wait=25h", "v1.37.1 v1.38.0", running(false), "--wait=25h0m0s: must be over 0s"},
		{"start --namespaces=a", "v1.37.1 v1.38.0", func(l leases) { clear(l) }, `fleet "flotilla" has no plan`},
	} {
		l := newLeases(t, testPlan(t))
		l.versions(strings.Fields(test.versions)...)
		if test.change != nil {
			test.change(l)
		}
		c := newCluster(l)
		_, _, err := c.run(t, "", append([]string{"canary"}, strings.Fields(test.args)...)...)
		if err == nil || !strings.Contains(err.Error(), test.want) || c.writes() > 0 {
			t.Errorf("%s: %v, %d writes, want %q", test.args, err, c.writes(), test.want)
		}
	}
	l := newLeases(t, testPlan(t))
	l.versions("v1.37.1", "v1.38.0")
	running(true)(l)
	for _, args := range []string{"plan rebalance", "plan simulate --members=3"} {
		c := newCluster(l)
		if _, _, err := c.run(t, "", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), "members of v1.38.0, which was aborted, are live: nothing is moved") || c.writes() > 0 {
			t.Errorf("%s beside an aborted version: %v, %d writes", args, err, c.writes())
		}
	}
	running(false)(l)
	for args, want := range map[string]string{
		"plan rebalance":            "a canary of v1.38.0 on a runs: nothing is moved until it is promoted or aborted",
		"plan simulate --members=3": "a canary of v1.38.0 on a runs: nothing is moved until it is promoted or aborted",
		"plan apply -f -":           "canary: must be left as it is: 'flotilla canary' begins and ends one",
	} {
		edited := testPlan(t)
		edited.Generation = 4
		document, err := edited.Document()
		if err != nil {
			t.Fatal(err)
		}
		c := newCluster(l)
		if _, _, err := c.run(t, document, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) || c.writes() > 0 {
			t.Errorf("%s: %v, %d writes, want %q", args, err, c.writes(), want)
		}
	}
}

// TestCanaryBeforeItsFirstMember follows the safe order: the version must be named, and a warning
// says that no member has it.
func TestCanaryBeforeItsFirstMember(t *testing.T) {
	l := newLeases(t, testPlan(t))
	l.versions("v1.37.1", "v1.37.1")
	c := newCluster(l)
	out, _, err := c.run(t, "", "canary", "start", "--namespaces=team-a", "--version=v1.38.0")
	if err != nil || !strings.Contains(out, "no live member has v1.38.0 yet: until one does, members of v1.37.1 keep the canary's namespaces") {
		t.Errorf("%v\n%s", err, out)
	}
	if plan := c.written(t); plan.Canary == nil || plan.Canary.Version != "v1.38.0" {
		t.Errorf("the canary is %+v", plan.Canary)
	}
}

// TestCanaryByWeight selects a part of the keyspace by the holders' census.
func TestCanaryByWeight(t *testing.T) {
	plan := testPlan(t)
	l := newLeases(t, plan)
	l.versions("v1.37.1", "v1.38.0")
	for _, s := range plan.Shards() {
		if s.Namespaced() {
			weights := map[string]int64{}
			for i := range 1000 {
				if name := fmt.Sprintf("%d-ns", i); s.Range.ContainsNamespace(name) {
					weights[name] = 10
				}
			}
			l[leaseapi.ShardLease(testFleet, s.ID)].Annotations[leaseapi.CensusAnnotation] = shard.NewCensus(weights).Compact(64).String()
		}
	}
	c := newCluster(l)
	out, _, err := c.run(t, "", "canary", "start", "--weight=10%")
	if err != nil || !strings.Contains(out, "where 10.0 % was asked for") {
		t.Fatalf("%v\n%s", err, out)
	}
	written := c.written(t)
	tried := 0
	for i := range 1000 {
		if s, _ := written.ShardFor("namespaces", fmt.Sprintf("%d-ns", i)); written.Tries(s) {
			tried++
		}
	}
	if tried < 80 || tried > 120 || len(written.Canary.Ranges) != 1 {
		t.Errorf("the canary %+v has %d of 1000 namespaces, want about 100", written.Canary, tried)
	}
}

// triedLeases returns the Leases of a fleet of two versions, in which each member holds what the
// canary gives it.
func triedLeases(t *testing.T, plan shard.Plan) leases {
	t.Helper()
	l := newLeases(t, plan)
	l.versions("v1.37.1", "v1.38.0")
	for _, s := range plan.Shards() {
		member := "flotilla-0"
		if plan.Tries(s) {
			member = "flotilla-1"
		}
		l.shard(plan, s.ID, member, 1)
	}
	return l
}

// TestCanaryStatus: 'flotilla canary status' and 'flotilla status' show both versions side by side.
func TestCanaryStatus(t *testing.T) {
	plan := testPlan(t)
	edited := plan
	edited.Canary = &shard.Canary{Version: "v1.38.0", Namespaces: []string{"team-a"}, Since: "2027-01-02T03:00:00Z", By: "alice"}
	next, err := plan.Successor(edited)
	if err != nil {
		t.Fatal(err)
	}
	l := triedLeases(t, next)
	c := newCluster(l)
	out, _, err := c.run(t, "", "canary", "status")
	for _, want := range []string{
		"Canary v1.38.0 on team-a, begun 4m5s ago by alice: 1 of 1 shards of it with 1 member of that version, 7 of 7 others with 1 member of others\n",
		"VERSION           MEMBERS  SHARDS  ERRORS  RETRIED  QUEUED  WAIT-P50  WAIT-P99  WORK-P50  WORK-P99  REQUESTS/S  RECONCILES/S\n",
		"v1.37.1           1        7       0.0 %   0.0 %    3       50µs      250ms     500µs     25ms      100.0       20.0\n",
		"v1.38.0 (canary)  1        1       2.5 %   1.2 %    4       100µs     250ms     500µs     25ms      100.0       40.0\n",
	} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: want %q in\n%s", err, want, out)
		}
	}
	out, _, _ = c.run(t, "", "status")
	for _, want := range []string{"Canary v1.38.0 on team-a, begun 4m5s ago by alice:", "v1.38.0 (canary)", "Canary"} {
		if !strings.Contains(out, want) {
			t.Errorf("status: want %q in\n%s", want, out)
		}
	}
	// If one member publishes no health, the values for its version stay open.
	delete(l[leaserecord.MemberLease(testFleet, "flotilla-1")].Annotations, leaseapi.HealthAnnotation)
	out, _, err = newCluster(l).run(t, "", "canary", "status")
	if want := "v1.38.0 (canary)  1        1       -       1.2 %    4       -         -         500µs     25ms      -           40.0\n"; err != nil || !strings.Contains(out, want) {
		t.Errorf("%v: want %q in\n%s", err, want, out)
	}
	for name, test := range map[string]struct {
		change   func(leases)
		severity status.Severity
		want     string
	}{
		"as it should be": {func(leases) {}, status.Note, "1 of 1 shards of it"},
		"astray": {func(l leases) {
			l.shard(next, shard.ID{Ring: "cluster", Name: "nodes"}, "flotilla-1", 2)
		}, status.Warning, "members of v1.38.0 still hold 1 shards that they should not have"},
		"not there yet": {func(l leases) { l.versions("v1.37.1", "v1.37.1") }, status.Note, "no member of that version is live yet"},
		"dead": {func(l leases) {
			stale := metav1.NewMicroTime(testNow.Add(-5 * time.Minute))
			l["flotilla-member-flotilla-1"].Spec.RenewTime = &stale
		}, status.Warning, "all members of that version are gone or drained"},
		"drained": {func(l leases) {
			l["flotilla-member-flotilla-1"].Annotations[leaseapi.DrainAnnotation] = "2027-01-02T03:00:00Z"
		}, status.Warning, "all members of that version are gone or drained"},
		"alone": {func(l leases) { l.versions("v1.38.0", "v1.38.0") }, status.Warning, "no member of another version is live"},
	} {
		l := triedLeases(t, next)
		test.change(l)
		var list []coordinationv1.Lease
		for _, lease := range l {
			list = append(list, *lease)
		}
		found := false
		for _, f := range status.Findings(status.Read(testFleet, list, testNow)) {
			if f.Kind == status.Canary {
				found = true
				if f.Severity != test.severity || !strings.Contains(f.Message, test.want) {
					t.Errorf("%s: %s %q, want %s %q", name, f.Severity, f.Message, test.severity, test.want)
				}
			}
		}
		if !found {
			t.Errorf("%s: no finding", name)
		}
	}
}
