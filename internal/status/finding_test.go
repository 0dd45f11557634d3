package status

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/history"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// A findingCase breaks one thing in a healthy fleet.
type findingCase struct {
	name string
	make func(*scene)
	// watched is how long to keep looking, once a second. 0 is a single look.
	watched time.Duration
	// want are "severity Kind about object", the worst first.
	want []string
	// says is part of the first finding's message.
	says string
}

// versionWith returns what a member publishes whose version has these controllers.
func versionWith(scope shard.Scope, names ...string) skew.Known {
	b := skew.Build{Version: "v1.36.0"}
	for _, name := range names {
		b.Controllers = append(b.Controllers, skew.Controller{Name: name, Scopes: []shard.Scope{scope}})
	}
	return b.Known()
}

var findingCases = []findingCase{
	{name: "calm", make: func(*scene) {}},
	{name: "calm watched", make: func(*scene) {}, watched: 20 * time.Second},
	{name: "nothing", make: func(s *scene) { clear(s.leases) }, want: []string{"error NoLeases fleet flotilla"}, says: "--fleet-name"},
	{name: "all dead for long", make: func(s *scene) { s.now = s.now.Add(5 * time.Minute) }, want: []string{"error NobodyRenews fleet flotilla"}, says: "for 5m1s, by the clock here"},
	{name: "all dead, one look", make: func(s *scene) { s.now = s.now.Add(8 * time.Second) }},
	{name: "all dead, watched", make: func(s *scene) { s.now = s.now.Add(8 * time.Second) }, watched: 10 * time.Second, want: []string{"error NobodyRenews fleet flotilla"}, says: "for 10s, as seen from here"},
	{name: "clock here is ahead", make: func(s *scene) { s.skew(30 * time.Second) }, watched: 20 * time.Second},
	{name: "clock here is far ahead", make: func(s *scene) { s.skew(5 * time.Minute) }, watched: 20 * time.Second},
	{name: "leader lock not renewed", make: func(s *scene) { s.leaderLock("flotilla_fleet", 30*time.Second) }, want: []string{"warning LeaderLockWithoutHolder lease kube-controller-manager"}, says: "may they update it?"},
	{name: "no plan", make: func(s *scene) { delete(s.at("plan").Annotations, leaseapi.DocumentAnnotation) }, want: []string{"error PlanMissing plan flotilla-plan"}, says: "the first member that starts writes one"},
	{name: "junk plan", make: func(s *scene) { s.at("plan").Annotations[leaseapi.DocumentAnnotation] = "{" }, want: []string{"error PlanUnreadable plan flotilla-plan"}, says: "annotation flotilla.dev/plan-document"},
	{name: "rejected", make: func(s *scene) { s.at("plan").Annotations[leaseapi.RejectedAnnotation] = "x" }, want: []string{"warning PlanPutAside plan flotilla-plan"}},
	{name: "refused", make: func(s *scene) {
		s.at("flotilla-1").Annotations[leaseapi.RefusedAnnotation] = "4: rings[0]: no"
	}, want: []string{"error PlanRefused member flotilla-1"}, says: "member flotilla-1 refuses plan generation 4: rings[0]: no"},
	{name: "lacking", make: func(s *scene) {
		s.at("01").Annotations[leaseapi.LacksAnnotation], s.at("volumes").Annotations[leaseapi.LacksAnnotation] = "job", "volumes-controller"
		s.at("flotilla-1").Annotations[leaseapi.CatalogueAnnotation] = versionWith(shard.ScopeNamespaced, "deployment").String()
	}, want: []string{"warning ControllersLacking member flotilla-1"}, says: "runs 2 shards without job, volumes-controller: its version, v1.36.0, does not have"},
	{name: "lacking, and not held", make: func(s *scene) {
		s.at("01").Annotations[leaseapi.LacksAnnotation] = "job"
		s.release("01", 100*time.Millisecond)
	}, want: []string{"warning Unowned shard namespaces/01"}},
	{name: "unfit", make: func(s *scene) {
		s.at("flotilla-1").Annotations[leaseapi.RingsAnnotation] = "cluster"
		s.at("flotilla-0").Annotations[leaseapi.CatalogueAnnotation] = versionWith(shard.ScopeCluster, "job").String()
	}, want: []string{"warning MemberUnfit member flotilla-0"}, says: "gets no shards of ring namespaces: its version, v1.36.0, can run"},
	{name: "canary", make: func(s *scene) { s.try(false) }, want: []string{"note Canary plan flotilla-plan"}, says: "canary v1.38.0 on 0x4000000000000000-0x8000000000000000: no member of that version is live yet"},
	{name: "canary of another name", make: func(s *scene) {
		s.try(false)
		s.at("flotilla-1").Annotations[leaseapi.CatalogueAnnotation] = versionWith(shard.ScopeNamespaced, "deployment").String()
	}, want: []string{"warning Canary plan flotilla-plan"}, says: "no live member has that version, and members of unknown, v1.36.0 have everything"},
	{name: "canary aborted", make: func(s *scene) { s.try(true) }, want: []string{"note Canary plan flotilla-plan"}, says: "aborted: its members get nothing, even if they come back, until 'flotilla canary forget'"},
	{name: "planner gone", make: func(s *scene) { s.release("plan", time.Minute) }, want: []string{"warning PlannerMissing plan flotilla-plan"}, says: "for 59s"},
	{name: "planner just gone", make: func(s *scene) { s.release("plan", time.Second) }},
	{name: "unserved", make: func(s *scene) {
		s.at("flotilla-0").Annotations[leaseapi.RingsAnnotation], s.at("flotilla-1").Annotations[leaseapi.RingsAnnotation] = "namespaces", "namespaces"
	}, want: []string{"error RingUnserved ring cluster", "warning PinnedToNobody ring cluster", "warning PinnedToNobody ring cluster"}, says: "ring cluster is served by no live member"},
	{name: "unowned of a dead holder", make: func(s *scene) { s.silence("01", 40*time.Second) }, want: []string{"error Unowned shard namespaces/01"}, says: "has been unowned for 24s: its holder flotilla-1 has been silent for 39s"},
	{name: "unowned recently", make: func(s *scene) { s.silence("01", 17*time.Second) }, want: []string{"warning Unowned shard namespaces/01"}},
	{name: "unowned, released", make: func(s *scene) { s.release("01", time.Minute) }, want: []string{"error Unowned shard namespaces/01"}, says: "it was released after term 1"},
	{name: "unowned for a moment", make: func(s *scene) { s.release("01", 1100*time.Millisecond) }, want: []string{"warning Unowned shard namespaces/01"}, says: "is unowned: it was released"},
	{name: "unowned, never held", make: func(s *scene) { delete(s.leases, "flotilla-namespaces-01") }, want: []string{"warning Unowned shard namespaces/01"}, says: "no member has ever held it"},
	{name: "unowned, never held, watched", make: func(s *scene) { delete(s.leases, "flotilla-namespaces-01") }, watched: 10 * time.Second, want: []string{"error Unowned shard namespaces/01"}},
	{name: "not unowned behind an older shard", make: func(s *scene) { s.release("00", time.Minute); s.older("flotilla-0") }, watched: 20 * time.Second},
	{name: "older shard, nobody succeeds it", make: func(s *scene) { s.release("00", time.Minute); s.older("flotilla-0") }, watched: time.Minute, want: []string{"error HandoffStuck shard namespaces/00"}, says: "nobody has claimed shard namespaces/00"},
	{name: "two holders", make: func(s *scene) { s.older("flotilla-1").Annotations[leaseapi.RunningAnnotation] = "1" }, want: []string{"error TwoHolders lease flotilla-namespaces-00"}, says: "by Lease flotilla-namespaces-old"},
	{name: "two holders, stripped labels", make: func(s *scene) {
		o := s.older("flotilla-1")
		o.Annotations, o.Labels = map[string]string{leaseapi.RunningAnnotation: "1"}, nil
	}, want: everyTwice},
	{name: "two holders, junk range", make: func(s *scene) {
		o := s.older("flotilla-1")
		o.Annotations = map[string]string{leaseapi.RunningAnnotation: "1", leaseapi.RangeAnnotation: "x", leaseapi.ControllersAnnotation: "deployment"}
	}, want: everyTwice},
	{name: "older of another term", make: func(s *scene) { s.older("flotilla-1").Annotations[leaseapi.RunningAnnotation] = "7" }, want: []string{"warning OlderClaim shard namespaces/00"}, says: "covers some of it, is held by flotilla-1"},
	{name: "older that covers nothing else's", make: func(s *scene) {
		o := s.older("flotilla-1")
		o.Annotations[leaseapi.ControllersAnnotation], o.Annotations[leaseapi.RunningAnnotation] = "cronjob", "1"
	}},
	{name: "two incarnations", make: func(s *scene) { s.at("01").Spec.HolderIdentity = ptr.To("flotilla-1_other") }, want: []string{"error TwoIncarnations member flotilla-1"}, says: "flotilla-1_other renews Lease flotilla-namespaces-01"},
	{name: "restarted just now", make: func(s *scene) {
		s.at("01").Spec.HolderIdentity = ptr.To("flotilla-1_other")
		s.at("flotilla-1").Spec.AcquireTime = stampOf(s.now.Add(-2 * time.Second))
	}},
	{name: "stranger", make: func(s *scene) { s.at("nodes").Spec.HolderIdentity = ptr.To("evil\x1b") }, want: []string{"warning UnknownHolder lease flotilla-cluster-nodes"}, says: `evil\x1b`},
	{name: "stranger on a member's Lease", make: func(s *scene) {
		s.member("flotilla-2").Spec.HolderIdentity = ptr.To("flotilla-1_0123")
	}, want: []string{"warning UnknownHolder member flotilla-2"}},
	{name: "nonsense", make: func(s *scene) { s.at("nodes").Spec.LeaseDurationSeconds = ptr.To[int32](0) }, want: []string{"warning LeaseNonsense lease flotilla-cluster-nodes"}, says: "leaseDurationSeconds 0"},
	{name: "asked, one look", make: func(s *scene) { s.ask() }},
	{name: "asked, watched", make: func(s *scene) { s.ask() }, watched: 12 * time.Second, want: []string{"warning HandoffStuck shard namespaces/01"}, says: "asked for by flotilla-1 at least 12s ago, and flotilla-0 has not given it up"},
	{name: "asked for a minute", make: func(s *scene) { s.ask() }, watched: time.Minute, want: []string{"error HandoffStuck shard namespaces/01"}},
	{name: "asked by a member that is not the owner", make: func(s *scene) { s.at("01").Annotations[leaserecord.NextHolderAnnotation] = "flotilla-0_0123" }, watched: time.Minute},
	{name: "asked by an incarnation that is gone", make: func(s *scene) {
		s.ask()
		s.at("01").Annotations[leaserecord.NextHolderAnnotation] = "flotilla-1_other"
	}, watched: 20 * time.Second},
	{name: "asked by an incarnation that is gone, for long", make: func(s *scene) {
		s.ask()
		s.at("01").Annotations[leaserecord.NextHolderAnnotation] = "flotilla-1_other"
	}, watched: time.Minute, want: []string{"warning HandoffStuck shard namespaces/01"}, says: "its owner flotilla-1 has not asked for it"},
	{name: "not asked for", make: func(s *scene) { s.ask(); delete(s.at("01").Annotations, leaserecord.NextHolderAnnotation) }, watched: time.Minute, want: []string{"warning HandoffStuck shard namespaces/01"}, says: "its owner flotilla-1 has not asked for it"},
	{name: "waiting", make: func(s *scene) { s.older("flotilla-1"); s.ready("00", 30*time.Second) }, want: []string{"warning HandoffStuck shard namespaces/00"}, says: "has been waiting at flotilla-0 for 29s, behind flotilla-namespaces-old of flotilla-1"},
	{name: "waiting for long", make: func(s *scene) { s.older("flotilla-1"); s.ready("00", 2*time.Minute) }, want: []string{"error HandoffStuck shard namespaces/00"}},
	{name: "waiting unprepared", make: func(s *scene) {
		s.older("flotilla-1")
		s.ready("00", 30*time.Second)
		delete(s.at("00").Annotations, leaseapi.ReadyAnnotation)
	}},
	{name: "waiting unprepared for long", make: func(s *scene) {
		s.older("flotilla-1")
		s.ready("00", 2*time.Minute)
		delete(s.at("00").Annotations, leaseapi.ReadyAnnotation)
	}, want: []string{"error HandoffStuck shard namespaces/00"}, says: "has been waiting at flotilla-0 for 1m59s, unprepared, behind"},
	{name: "idle, one look", make: func(s *scene) { delete(s.at("02").Annotations, leaseapi.RunningAnnotation) }},
	{name: "idle, watched", make: func(s *scene) { delete(s.at("02").Annotations, leaseapi.RunningAnnotation) }, watched: 10 * time.Second, want: []string{"warning NotRunning shard namespaces/02"}, says: "flotilla-0, who has not said for at least 10s"},
	{name: "flapping by its age", make: func(s *scene) {
		s.at("02").CreationTimestamp = metav1.NewTime(s.now.Add(-10 * time.Minute))
		s.at("02").Spec.LeaseTransitions, s.at("02").Annotations[leaseapi.RunningAnnotation] = ptr.To[int32](30), "30"
	}, want: []string{"warning Flapping lease flotilla-namespaces-02"}, says: "30 terms in the 9m59s"},
	{name: "young", make: func(s *scene) {
		s.at("02").CreationTimestamp = metav1.NewTime(s.now.Add(-time.Minute))
		s.at("02").Spec.LeaseTransitions, s.at("02").Annotations[leaseapi.RunningAnnotation] = ptr.To[int32](7), "7"
	}},
	{name: "leader locks differ", make: func(s *scene) {
		s.at("flotilla-1").Annotations[leaseapi.LeaderLocksAnnotation] = "kube-controller-manager"
	}, want: []string{"warning LeaderLocksDiffer fleet flotilla"}, says: "(none): flotilla-0; kube-controller-manager: flotilla-1"},
	{name: "leader lock of its own", make: func(s *scene) { s.leaderLock("flotilla_fleet", time.Second) }},
	{name: "leader lock held by a stock leader", make: func(s *scene) { s.leaderLock("stock_1", 2*time.Second); s.releaseAll() }, want: []string{"note WaitingForLeaderLock lease kube-controller-manager"},
		says: "is held by stock_1, renewed 1s ago, which runs the controllers"},
	{name: "leader lock held by a stock leader, watched", make: func(s *scene) { s.leaderLock("stock_1", 2*time.Second); s.releaseAll() }, watched: time.Minute,
		want: []string{"note WaitingForLeaderLock lease kube-controller-manager"}},
	{name: "leader lock of a dead leader", make: func(s *scene) { s.leaderLock("stock_1", 30*time.Second); s.releaseAll() }, want: []string{"warning LeaderLockWithoutHolder lease kube-controller-manager"}, says: "has not renewed it for 29s"},
	{name: "leader lock of a leader long dead", make: func(s *scene) { s.leaderLock("stock_1", time.Hour); s.releaseAll() }, want: []string{"error LeaderLockWithoutHolder lease kube-controller-manager"}},
	{name: "leader lock that says nonsense", make: func(s *scene) {
		s.leaderLock("stock_1", 0).Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To("\x1b[2J")}
		s.releaseAll()
	}, want: []string{"warning LeaderLockWithoutHolder lease kube-controller-manager"}, says: "has not renewed it, unless"},
	{name: "leader lock of nobody", make: func(s *scene) { s.leaderLock("", time.Minute); s.release("01", time.Minute) }, want: []string{"error Unowned shard namespaces/01"}},
	{name: "no leader lock", make: func(s *scene) {
		s.leaderLock("", 0)
		delete(s.leases, "kube-controller-manager")
		s.release("01", time.Minute)
	}, want: []string{"error Unowned shard namespaces/01"}},
	{name: "disagrees, one look", make: func(s *scene) { s.at("flotilla-1").Annotations[leaseapi.PlanAnnotation] = "feed" }},
	{name: "disagrees, watched", make: func(s *scene) { s.at("flotilla-1").Annotations[leaseapi.PlanAnnotation] = "feed" }, watched: 10 * time.Second, want: []string{"warning MemberDisagrees member flotilla-1"}, says: "by plan generation 3, digest feed"},
	{name: "disagrees for a minute", make: func(s *scene) { s.at("flotilla-1").Annotations[leaseapi.PlanAnnotation] = "feed" }, watched: time.Minute, want: []string{"error MemberDisagrees member flotilla-1"}},
	{name: "silent", make: func(s *scene) { s.member("flotilla-2"); s.silence("flotilla-2", time.Minute) }, want: []string{"warning MemberSilent member flotilla-2"}, says: "for 59s"},
	{name: "silent for so long that it is forgotten", make: func(s *scene) { s.member("flotilla-2"); s.silence("flotilla-2", time.Hour) }},
	{name: "left", make: func(s *scene) { s.member("flotilla-2"); s.release("flotilla-2", time.Minute) }},
	{name: "joining", make: func(s *scene) { s.member("flotilla-2").Annotations[leaserecord.StateAnnotation] = "joining" }, want: []string{"warning MemberJoining member flotilla-2"}, says: "for 29m59s"},
	{name: "leaving", make: func(s *scene) { s.member("flotilla-2").Annotations[leaserecord.StateAnnotation] = "leaving" }, watched: 5 * time.Minute, want: []string{"warning MemberLeaving member flotilla-2"}},
	{name: "drained", make: func(s *scene) { s.member("flotilla-2").Annotations[leaseapi.DrainAnnotation] = "2027-01-02T03:00:00Z" }, want: []string{"note MemberDrained member flotilla-2"}, says: "drained since 2027-01-02T03:00:00Z"},
	{name: "all drained", make: func(s *scene) {
		s.at("flotilla-0").Annotations[leaseapi.DrainAnnotation], s.at("flotilla-1").Annotations[leaseapi.DrainAnnotation] = "x", "x"
	}, want: []string{"warning DrainedInVain ring cluster", "warning DrainedInVain ring namespaces", "note MemberDrained member flotilla-0", "note MemberDrained member flotilla-1"}},
	{name: "stopped, a stock leader leads", make: func(s *scene) { s.stop(time.Hour, true); s.leaderLock("stock_1", 2*time.Second) }, watched: time.Minute, want: []string{"note Stopped fleet flotilla"},
		says: "the fleet is stopped since 2027-01-02T02:04:05Z by alice, until 'flotilla start': its 2 live members stand by; the leader lock, Lease kube-controller-manager, is held by stock_1"},
	{name: "stopped, without leader locks", make: func(s *scene) { s.stop(time.Hour, true) }, want: []string{"note Stopped fleet flotilla"}, says: "it has no leader lock"},
	{name: "stopped just now, nobody leads yet", make: func(s *scene) { s.stop(9*time.Second, true); s.leaderLock("", 5*time.Second) }, want: []string{"note Stopped fleet flotilla"}, says: "nobody runs its controllers"},
	{name: "stopped, nobody leads", make: func(s *scene) { s.stop(time.Hour, true); s.leaderLock("", 30*time.Second) },
		want: []string{"warning LeaderLockWithoutHolder lease kube-controller-manager", "note Stopped fleet flotilla"}, says: "nobody runs the controllers"},
	{name: "stopped, nobody leads for long", make: func(s *scene) { s.stop(time.Hour, true); s.leaderLock("", 2*time.Minute) },
		want: []string{"error LeaderLockWithoutHolder lease kube-controller-manager", "note Stopped fleet flotilla"}},
	{name: "stopped, the stock leader has died", make: func(s *scene) { s.stop(time.Hour, true); s.leaderLock("stock_1", 2*time.Minute) },
		want: []string{"error LeaderLockWithoutHolder lease kube-controller-manager", "note Stopped fleet flotilla"}},
	{name: "stopping", make: func(s *scene) { s.stop(5*time.Second, false) }, want: []string{"note Stopped fleet flotilla"}, says: "by member flotilla-0, which holds 3; member flotilla-1, which holds 3"},
	{name: "stopping for long", make: func(s *scene) { s.stop(2*time.Minute, false) }, want: []string{"warning Stopped fleet flotilla"}},
	{name: "stopped, leader lock not released", make: func(s *scene) { s.stop(2*time.Minute, true); s.leaderLock("flotilla_fleet", time.Second) },
		want: []string{"warning Stopped fleet flotilla"}, says: "is still held by the fleet"},
	{name: "a stop that cannot be read", make: func(s *scene) { s.at("plan").Annotations[leaseapi.StopAnnotation] = "true" }, want: []string{"warning StopUnreadable plan flotilla-plan"}, says: "members go on as before"},
	{name: "another fleet", make: func(s *scene) {
		o := s.older("flotilla-1")
		o.Labels[leaseapi.FleetLabel], o.Annotations[leaseapi.RunningAnnotation] = "flotilla-namespaces", "1"
	}},
	{name: "the label of a fleet whose Leases have other names", make: func(s *scene) {
		o := s.older("flotilla-1")
		o.Labels[leaseapi.FleetLabel], o.Annotations[leaseapi.RunningAnnotation] = "armada", "1"
	}, want: []string{"error TwoHolders lease flotilla-namespaces-00"}},
}

// everyTwice are the findings for a Lease that does not say what it covers: each shard has two
// holders.
var everyTwice = []string{
	"error TwoHolders lease flotilla-cluster-nodes", "error TwoHolders lease flotilla-cluster-volumes",
	"error TwoHolders lease flotilla-namespaces-00", "error TwoHolders lease flotilla-namespaces-01",
	"error TwoHolders lease flotilla-namespaces-02", "error TwoHolders lease flotilla-namespaces-03",
}

// silence sets the last renewal of a Lease to d ago.
func (s *scene) silence(name string, d time.Duration) {
	s.at(name).Spec.RenewTime = stampOf(s.now.Add(-d))
}

// release makes the holder of a Lease release it d ago.
func (s *scene) release(name string, d time.Duration) {
	s.silence(name, d)
	s.at(name).Spec.HolderIdentity, s.at(name).Spec.LeaseDurationSeconds = ptr.To(""), ptr.To[int32](1)
}

// ask makes flotilla-0 hold shard 01, while its owner flotilla-1 asks for it.
func (s *scene) ask() {
	s.shard(shard.ID{Ring: "namespaces", Name: "01"}, "flotilla-0", 1).Annotations[leaserecord.NextHolderAnnotation] = "flotilla-1_0123"
}

// stop stops the fleet some time ago, with all members at rest or none.
func (s *scene) stop(ago time.Duration, still bool) {
	text := s.now.Add(-ago).Format(time.RFC3339) + " by alice"
	s.at("plan").Annotations[leaseapi.StopAnnotation] = text
	if still {
		s.at("flotilla-0").Annotations[leaseapi.StillAnnotation], s.at("flotilla-1").Annotations[leaseapi.StillAnnotation] = text, text
		s.releaseAll()
	}
}

// ready makes a shard publish that it has been waiting for d.
func (s *scene) ready(name string, d time.Duration) {
	a := s.at(name).Annotations
	delete(a, leaseapi.RunningAnnotation)
	a[leaseapi.ReadyAnnotation] = "1"
	s.at(name).Spec.AcquireTime = stampOf(s.now.Add(-d))
}

// skew moves all timestamps back by d, as if the writers' clocks were behind the one here.
func (s *scene) skew(d time.Duration) {
	for _, lease := range s.leases {
		lease.Spec.AcquireTime, lease.Spec.RenewTime = stampOf(lease.Spec.AcquireTime.Add(-d)), stampOf(lease.Spec.RenewTime.Add(-d))
	}
}

// try puts a canary for shard namespaces/01 into the plan.
func (s *scene) try(aborted bool) {
	plan := s.plan
	tried, _ := plan.Shard(shard.ID{Ring: "namespaces", Name: "01"})
	plan.Canary = &shard.Canary{Version: "v1.38.0", Ranges: []shard.Range{tried.Range}, Aborted: aborted}
	document, err := plan.Document()
	if err != nil {
		panic(err)
	}
	s.at("plan").Annotations[leaseapi.DocumentAnnotation] = document
}

// TestFindings breaks everything that has a finding, and tries what looks similar but has none.
func TestFindings(t *testing.T) {
	made := map[Kind]bool{Flapping: true}
	for _, test := range findingCases {
		t.Run(test.name, func(t *testing.T) {
			s := newScene(t)
			test.make(s)
			r := s.watch(test.watched)
			found := Findings(r)
			var got []string
			for _, f := range found {
				made[f.Kind] = true
				got = append(got, fmt.Sprintf("%s %s %s %s", f.Severity, f.Kind, f.About, f.Object))
				if f.Message != Plain(f.Message) || strings.HasSuffix(f.Message, ".") {
					t.Errorf("message %q", f.Message)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if len(found) > 0 && !strings.Contains(found[0].Message, test.says) {
				t.Errorf("%q does not say %q", found[0].Message, test.says)
			}
			if Worst(found) == "" != (len(test.want) == 0) {
				t.Errorf("the worst of %v is %q", got, Worst(found))
			}
		})
	}
	for _, kind := range kinds {
		if !made[kind] {
			t.Errorf("no case makes %s", kind)
		}
	}
}

// watch looks once a second for d, while live members renew. Members that are dead do not.
func (s *scene) watch(d time.Duration) *Reading {
	r := s.read().Following(nil)
	dead := s.now.Sub(r.lastRenewal) > 2*time.Second
	for range d / time.Second {
		if dead && !s.skewed() {
			s.now = s.now.Add(time.Second)
		} else {
			s.passAll(time.Second)
		}
		r = s.read().Following(r)
	}
	return r
}

// skewed reports whether all renewals have timestamps of half a minute ago.
func (s *scene) skewed() bool {
	return s.now.Sub(s.at("plan").Spec.RenewTime.Time) > 20*time.Second
}

// passAll lets time pass. Leases that were renewed within two seconds of the latest renewal are
// renewed again.
func (s *scene) passAll(d time.Duration) {
	latest := time.Time{}
	renewed := func(lease *coordinationv1.Lease) time.Time {
		return ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time
	}
	for _, lease := range s.leases {
		if renewed(lease).After(latest) {
			latest = renewed(lease)
		}
	}
	for _, lease := range s.leases {
		if ptr.Deref(lease.Spec.HolderIdentity, "") != "" && latest.Sub(renewed(lease)) <= 2*time.Second {
			lease.Spec.RenewTime = stampOf(renewed(lease).Add(d))
		}
	}
	s.now = s.now.Add(d)
}

// TestSuspicious requires further looks only where they decide something, and only until they have.
func TestSuspicious(t *testing.T) {
	want := map[string]bool{
		"all dead, one look": true, "clock here is ahead": true, "asked, one look": true, "idle, one look": true, "disagrees, one look": true,
		"unowned for a moment": true, "unowned, never held": true, "unowned recently": true, "planner just gone": true,
	}
	for _, test := range findingCases {
		s := newScene(t)
		test.make(s)
		if got := s.read().Suspicious(); want[test.name] && !got || test.name == "calm" && got {
			t.Errorf("%s: %v", test.name, got)
		}
		for looks, r := 0, s.read(); r.Suspicious(); looks++ {
			if looks > 10 {
				t.Errorf("%s: still undecided after %d looks", test.name, looks)
				break
			}
			s.passAll(time.Second)
			r = s.read().Following(r)
		}
	}
}

// TestClockBehind: all members have died, and the clock here is behind theirs, so that their last
// renewals seem to come from the future. Only looking again shows that nobody renews.
func TestClockBehind(t *testing.T) {
	s := newScene(t)
	s.skew(-5 * time.Minute)
	s.now = s.now.Add(4 * time.Minute)
	r := s.read().Following(nil)
	looks := 0
	for ; r.Suspicious(); looks++ {
		s.now = s.now.Add(time.Second)
		r = s.read().Following(r)
	}
	if found := Findings(r); looks == 0 || len(found) == 0 || found[0].Kind != NobodyRenews {
		t.Errorf("after %d more looks: %v, want NobodyRenews first", looks, found)
	}
}

// TestStandingEnds: a condition that stops for a moment starts again, and a change of holder makes
// a new one.
func TestStandingEnds(t *testing.T) {
	s := newScene(t)
	s.ask()
	r := s.watch(9 * time.Second)
	s.passAll(time.Second)
	s.at("01").Annotations[leaserecord.NextHolderAnnotation] = ""
	r = s.read().Following(r)
	s.ask()
	for range 9 {
		s.passAll(time.Second)
		r = s.read().Following(r)
	}
	if found := Findings(r); len(found) > 0 {
		t.Errorf("after 9 s: %v", found)
	}
	s.passAll(2 * time.Second)
	if found := Findings(s.read().Following(r)); len(found) != 1 || found[0].Kind != HandoffStuck {
		t.Errorf("after 11 s: %v", found)
	}
}

// TestFlappingWatched makes many terms while somebody watches.
func TestFlappingWatched(t *testing.T) {
	s := newScene(t)
	r := s.read()
	for term := range int32(8) {
		s.passAll(10 * time.Second)
		s.at("01").Spec.LeaseTransitions, s.at("01").Annotations[leaseapi.RunningAnnotation] = ptr.To(term+1), fmt.Sprint(term+1)
		r = s.read().Following(r)
		found := Findings(r)
		if flaps := len(found) == 1 && found[0].Kind == Flapping; flaps != (term >= flapTerms) {
			t.Errorf("term %d: %v", term+1, found)
		}
	}
}

// TestObserved checks that a member that has watched the Leases has the same findings, with its own
// times.
func TestObserved(t *testing.T) {
	s := newScene(t)
	s.silence("01", time.Hour) // It was seen to change just now, whatever its timestamp.
	look := func() *Reading {
		var all []election.Observation
		for _, o := range s.read().Leases() {
			o.Seen = s.now.Add(-time.Second)
			if o.Name == "flotilla-namespaces-02" {
				o.Seen = s.now.Add(-time.Minute)
			}
			all = append(all, o)
		}
		return Observed(testFleet, all, s.now)
	}
	r := look()
	if found := Findings(r); len(found) != 1 || found[0].Kind != Unowned || found[0].Object != "namespaces/02" {
		t.Errorf("found %v", found)
	}
	for range 11 {
		s.passAll(time.Second)
		r = look().Following(r)
	}
	if found := Findings(r); len(found) != 1 || found[0].Severity != Error {
		t.Errorf("later found %v", found)
	}
}

// TestRunbooks checks that each page exists and has the name of an alert.
func TestRunbooks(t *testing.T) {
	rules, err := os.ReadFile("../../deploy/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for kind, page := range runbooks {
		alert := strings.TrimSuffix(strings.TrimPrefix(page, "docs/runbooks/"), ".md")
		if !strings.Contains(string(rules), "alert: "+alert+"\n") || !slices.Contains(kinds, kind) {
			t.Errorf("%s: page %s, and no alert of that name", kind, page)
		}
		if url := "runbook_url: " + runbookBase + page + "\n"; !strings.Contains(string(rules), url) {
			t.Errorf("%s: no alert has %s", kind, url)
		}
		if _, err := os.Stat("../../" + page); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestNonsenseIsHarmless reads Leases that an attacker might write. Nothing may fail, and every
// text must be plain.
func TestNonsenseIsHarmless(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		s := newScene(t)
		names := make([]string, 0, len(s.leases))
		for name := range s.leases {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			if random.IntN(3) == 0 {
				spoil(random, s.leases[name])
			}
		}
		before := s.read()
		s.passAll(time.Duration(random.IntN(100)) * time.Second)
		spoil(random, s.leases[names[random.IntN(len(names))]])
		r := s.read().Following(before)
		for _, f := range Of(r).Findings {
			if f.Message != Plain(f.Message) || f.Object != Plain(f.Object) || !slices.Contains(kinds, f.Kind) {
				t.Errorf("%+v", f)
			}
		}
		events := append(Past(r), Silences(before, r)...)
		for _, name := range names {
			events = append(events, Changes(r, before.Lease(name), r.Lease(name), r.Now)...)
		}
		for _, e := range events {
			if e.Message != Plain(e.Message) || e.Object != Plain(e.Object) || Stamp(e.Time) == nil {
				t.Errorf("%+v", e)
			}
		}
		_ = r.Suspicious()
	}
}

var nonsense = []string{"", "x", "\x1b[2J", "-1", "99999999999999999999", "flotilla-0_0123", "flotilla-1_other", "_", "0x0-0x1", "\xff", "1", "2", "{", "joining", "leaving", "deployment,job"}

// spoil writes nonsense on a Lease.
func spoil(random *rand.Rand, lease *coordinationv1.Lease) {
	word := func() string { return nonsense[random.IntN(len(nonsense))] }
	annotations := []string{
		leaseapi.RangeAnnotation, leaseapi.ControllersAnnotation, leaseapi.PlanAnnotation, leaseapi.GenerationAnnotation, leaseapi.ReadyAnnotation, leaseapi.RunningAnnotation,
		leaseapi.CensusAnnotation, leaseapi.RingsAnnotation, leaseapi.DrainAnnotation, leaseapi.RefusedAnnotation, leaseapi.RejectedAnnotation, leaserecord.StateAnnotation, leaserecord.NextHolderAnnotation,
	}
	for range 1 + random.IntN(4) {
		switch random.IntN(7) {
		case 0:
			lease.Spec.HolderIdentity = ptr.To(word())
		case 1:
			lease.Spec.LeaseTransitions = ptr.To(random.Int32() - 1<<30)
		case 2:
			lease.Spec.AcquireTime, lease.Spec.RenewTime = nil, stampOf(time.Unix(random.Int64N(1<<40), 0))
		case 3:
			lease.Labels = map[string]string{leaseapi.FleetLabel: testFleet, leaseapi.RingLabel: word(), leaseapi.ShardLabel: word()}
		case 4:
			lease.Spec = coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To(random.Int32() - 1<<30)}
		case 5:
			lease.Annotations = nil
		default:
			if lease.Annotations == nil {
				lease.Annotations = map[string]string{}
			}
			lease.Annotations[annotations[random.IntN(len(annotations))]] = word()
		}
	}
}

// Shards' Leases are not renewed: a shard is silent if its holder's own Lease is.
func TestSilenceIsTheMembers(t *testing.T) {
	s := newScene(t)
	for name, lease := range s.leases {
		if strings.HasPrefix(name, "flotilla-member-") {
			lease.Annotations[leaserecord.ProtocolAnnotation] = "2"
		} else {
			lease.Spec.RenewTime = lease.Spec.AcquireTime
		}
	}
	before := s.read()
	s.now = s.now.Add(20 * time.Second)
	s.at("member-flotilla-0").Spec.RenewTime = stampOf(s.now)
	dead := s.at("member-flotilla-1")
	dead.Spec.HolderIdentity = ptr.To("")
	dead.Annotations[leaserecord.EndedAnnotation] = "flotilla-1_0123"
	found := 0
	for _, e := range Silences(before, s.read().Following(before)) {
		if e.Kind != history.Expired || !strings.Contains(e.Message, "has not renewed for 21s") {
			t.Errorf("%+v", e)
		}
		found++
	}
	if want := len(s.plan.Shards()) / 2; found != want {
		t.Errorf("%d shards are reported as silent, want %d", found, want)
	}
}
