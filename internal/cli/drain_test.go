package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// drainMark returns the drain annotation of the member's Lease.
func (c *cluster) drainMark(t *testing.T, member string) string {
	t.Helper()
	lease, err := c.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), leaserecord.MemberLease(testFleet, member), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease.Annotations[leaseapi.DrainAnnotation]
}

// TestDrain drains and undrains a member, each twice: the second time must write nothing. The
// output names the members that get the shards.
func TestDrain(t *testing.T) {
	c := newCluster(newLeases(t, testPlan(t)))
	for _, test := range []struct {
		args   string
		want   string
		writes int
		mark   string
	}{
		{"undrain flotilla-1", "Member flotilla-1 is not drained\n", 0, ""},
		{"drain flotilla-1 --dry-run", "Dry run: member flotilla-1 would be drained\nIts shards of ring cluster go to flotilla-0\nIts shards of ring namespaces go to flotilla-0\nIt holds 3 shards\n", 0, ""},
		{"drain flotilla-1 --wait=false", "Member flotilla-1 is drained\nIts shards of ring cluster go to flotilla-0\nIts shards of ring namespaces go to flotilla-0\nIt holds 3 shards\n", 1, "2027-01-02T03:04:05Z"},
		{"drain flotilla-1 --wait=false", "Member flotilla-1 is drained already, since 2027-01-02T03:04:05Z\n", 1, "2027-01-02T03:04:05Z"},
		{"undrain flotilla-1 --dry-run", "Dry run: member flotilla-1 would be undrained\n", 1, "2027-01-02T03:04:05Z"},
		{"undrain flotilla-1", "Member flotilla-1 is undrained, and will be handed shards\n", 2, ""},
		{"undrain flotilla-1", "Member flotilla-1 is not drained\n", 2, ""},
	} {
		out, _, err := c.run(t, "", strings.Fields(test.args)...)
		if err != nil || !strings.HasPrefix(out, test.want) || c.writes() != test.writes || c.drainMark(t, "flotilla-1") != test.mark {
			t.Errorf("%s: %v, %d writes, marked %q\n%s", test.args, err, c.writes(), c.drainMark(t, "flotilla-1"), out)
		}
	}
}

// TestDrainRefused checks that nothing is written, and that the error says what exists and what to
// do.
func TestDrainRefused(t *testing.T) {
	for _, test := range []struct {
		name   string
		args   string
		change func(leases)
		want   []string
	}{
		{"no such member", "drain flotilla-9", func(leases) {}, []string{`"flotilla-9"`, "flotilla-0, flotilla-1"}},
		{"no such member", "undrain flotilla-9", func(leases) {}, []string{`"flotilla-9"`, "flotilla-0, flotilla-1"}},
		{"no name", "drain", func(leases) {}, []string{"flotilla drain takes one MEMBER, got []"}},
		{"empty name", "drain ", func(leases) {}, []string{"flotilla drain takes one MEMBER, got []"}},
		{"a Lease's name", "drain flotilla-member-flotilla-0", func(leases) {}, []string{"must be a member"}},
		{"odd name", "drain \x1b[2J", func(leases) {}, []string{`"\x1b[2J"`}},
		{"no fleet", "drain flotilla-0", func(l leases) { clear(l) }, []string{`fleet "flotilla" has no live members`}},
		{"the last", "drain flotilla-0", func(l leases) { l["flotilla-member-flotilla-1"].Annotations[leaseapi.DrainAnnotation] = "x" },
			[]string{"the last that serves ring namespaces, cluster", "--force"}},
		{"the last of a ring", "drain flotilla-0", func(l leases) { l["flotilla-member-flotilla-1"].Annotations[leaseapi.RingsAnnotation] = "namespaces" }, []string{"the last that serves ring cluster"}},
		{"the other leaves", "drain flotilla-0", func(l leases) { l["flotilla-member-flotilla-1"].Annotations[leaserecord.StateAnnotation] = "leaving" }, []string{"the last"}},
		{"the other refuses the plan", "drain flotilla-0 --wait=false", func(l leases) {
			other := l["flotilla-member-flotilla-1"].Annotations
			other[leaseapi.RefusedAnnotation] = "1:lacks a controller"
			delete(other, leaseapi.GenerationAnnotation)
		}, []string{"the last"}},
		{"the last beside a canary", "drain flotilla-0", func(l leases) { l.try(t, false) }, []string{"the last of another version than the canary's, v1.38.0, that serves ring namespaces, cluster", "--force"}},
		{"the last beside an aborted canary", "drain flotilla-0", func(l leases) { l.try(t, true) }, []string{"the last of another version than the canary's", "forget the canary"}},
		{"no plan that can be read", "drain flotilla-0", func(l leases) { l["flotilla-plan"].Annotations[leaseapi.DocumentAnnotation] = "{" },
			[]string{"who would get the shards of member flotilla-0", "annotation flotilla.dev/plan-document", "--force"}},
		{"retired", "drain flotilla-0 --force", func(l leases) {
			l["flotilla-member-flotilla-0"] = leaserecord.Retired(l["flotilla-member-flotilla-0"], "7", true)
		}, []string{`"flotilla-0": must be a member`}},
		{"gone", "drain flotilla-0", func(l leases) { l["flotilla-member-flotilla-0"].Spec.HolderIdentity = ptr.To("") }, []string{"flotilla-0 is gone", "--force"}},
		{"timeout", "drain flotilla-0 --timeout=-1s", func(leases) {}, []string{"--timeout=-1s", "up to 24h0m0s"}},
	} {
		l := newLeases(t, testPlan(t))
		test.change(l)
		c := newCluster(l)
		_, _, err := c.run(t, "", strings.Fields(test.args)...)
		for _, want := range test.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", test.name, err, want)
			}
		}
		if c.writes() > 0 {
			t.Errorf("%s: written", test.name)
		}
	}
}

// try puts a canary of flotilla-1's version, or an aborted one, on the plan's Lease.
func (l leases) try(t *testing.T, aborted bool) {
	t.Helper()
	plan := testPlan(t)
	edited := plan
	edited.Canary = &shard.Canary{Version: "v1.38.0", Namespaces: []string{"team-a"}, Since: "2027-01-02T03:00:00Z", By: "alice", Aborted: aborted}
	next, err := plan.Successor(edited)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(l, newLeases(t, next))
	l.versions("v1.37.1", "v1.38.0")
}

// TestDrainForced checks that the last member of a ring is drained without waiting.
func TestDrainForced(t *testing.T) {
	l := newLeases(t, testPlan(t))
	l["flotilla-member-flotilla-1"].Annotations[leaseapi.RingsAnnotation] = "namespaces"
	c := newCluster(l)
	out, _, err := c.run(t, "", "drain", "flotilla-0", "--force")
	if err != nil || !strings.Contains(out, "It is the last that serves ring cluster, and keeps those shards") || c.drainMark(t, "flotilla-0") == "" {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDrainOfTheLastAgain checks that a script that drains the last member a second time does not
// go on as if it were empty.
func TestDrainOfTheLastAgain(t *testing.T) {
	l := newLeases(t, testPlan(t))
	for _, member := range []string{"flotilla-0", "flotilla-1"} {
		l["flotilla-member-"+member].Annotations[leaseapi.DrainAnnotation] = "2027-01-02T03:00:00Z"
	}
	c := newCluster(l)
	for args, want := range map[string]string{
		"drain flotilla-0":              "member flotilla-0 is the last that serves ring namespaces, cluster and is not empty",
		"drain flotilla-0 --force":      "",
		"drain flotilla-0 --wait=false": "",
	} {
		out, _, err := c.run(t, "", strings.Fields(args)...)
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && !strings.Contains(got, want) || !strings.Contains(out, "is drained already") {
			t.Errorf("%s: %v, want %q in it\n%s", args, err, want, out)
		}
	}
}

// TestDrainForcedBesideACanary checks that the command says where everything goes.
func TestDrainForcedBesideACanary(t *testing.T) {
	l := newLeases(t, testPlan(t))
	l.try(t, false)
	c := newCluster(l)
	out, _, err := c.run(t, "", "drain", "flotilla-0", "--force", "--wait=false")
	if err != nil || !strings.Contains(out, "Its shards of ring namespaces go to flotilla-1") || strings.Contains(out, "keeps") || c.drainMark(t, "flotilla-0") == "" {
		t.Errorf("%v\n%s", err, out)
	}
}

// Each renewal costs one more try, and the error says when the command gives up.
func TestDrainInConflict(t *testing.T) {
	c := newCluster(newLeases(t, testPlan(t)))
	c.conflicts(3, func() {})
	if _, _, err := c.run(t, "", "drain", "flotilla-0", "--wait=false"); err != nil || c.writes() != 4 || c.drainMark(t, "flotilla-0") == "" {
		t.Errorf("%v, %d writes", err, c.writes())
	}
	c = newCluster(newLeases(t, testPlan(t)))
	c.conflicts(1000, func() {})
	if _, _, err := c.run(t, "", "drain", "flotilla-0", "--wait=false"); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "nothing is changed") {
		t.Errorf("%v", err)
	}
	c = newCluster(newLeases(t, testPlan(t)))
	c.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(coordinationv1.Resource("leases"), "x", errors.New("not for you"))
	})
	if _, _, err := c.run(t, "", "drain", "flotilla-0"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "writing Lease flotilla-member-flotilla-0 in namespace kube-system") {
		t.Errorf("%v", err)
	}
}

// TestDrainWaits: drain waits until the member holds nothing, or until its limit, or until somebody
// undrains the member.
func TestDrainWaits(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(leases)
		want   string // Part of the error; none if drain must succeed.
	}{
		{"handed over", func(l leases) {
			for _, lease := range l {
				if lease.Labels[leaseapi.RingLabel] != "" {
					lease.Spec.HolderIdentity = ptr.To("flotilla-0_0123")
				}
			}
		}, ""},
		{"too late", func(l leases) { *l.at("01").Spec.HolderIdentity = "flotilla-0_0123" }, "waited 20s for member flotilla-1, which stays drained: member flotilla-1 holds 2 shards"},
		{"undrained", func(l leases) { l["flotilla-member-flotilla-1"].Annotations = nil }, "somebody has undrained it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeases(t, testPlan(t))
				l.age(time.Since(testNow))
				c := newCluster(l)
				c.clock = clock.RealClock{} // virtual
				defer time.AfterFunc(7*time.Second+waitInterval/2, func() { c.change(t, test.change) }).Stop()
				defer c.beat(t)()
				out, progress, err := c.run(t, "", "drain", "flotilla-1", "--timeout=20s")
				if test.want == "" && (err != nil || !strings.Contains(out, "Member flotilla-1 holds no shards, after 7")) || !strings.Contains(progress, "Waiting: member flotilla-1 holds 3 shards") {
					t.Errorf("%v\n%s%s", err, out, progress)
				}
				if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("error %v, want %q in it", err, test.want)
				}
			})
		})
	}
}

// TestCompletion: completion offers live members and output formats, and nothing, at once, if the
// API server is out of reach.
func TestCompletion(t *testing.T) {
	l := newLeases(t, testPlan(t))
	l.member("flotilla-2", testPlan(t)).Spec.HolderIdentity = nil
	c := newCluster(l)
	for args, want := range map[string]string{
		"drain ": "flotilla-0\nflotilla-1\n:4\n", "undrain ": "flotilla-0\nflotilla-1\n:4\n", "drain flotilla-0 ": ":4\n",
		"status -o ": "table\njson\nyaml\nwide\nname\n:4\n", "plan show -o ": "table\njson\nyaml\nwide\nname\ndocument\n:4\n", "explain ": ":4\n",
	} {
		out, _, err := c.run(t, "", append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if err != nil || out != want {
			t.Errorf("%q: %v %q, want %q", args, err, out, want)
		}
	}
	c.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("down") })
	if out, _, err := c.run(t, "", "__complete", "drain", ""); err != nil || out != ":4\n" {
		t.Errorf("%v %q", err, out)
	}
}

// recordEvent adds a Kubernetes event about a Lease.
func (c *cluster) recordEvent(t *testing.T, name, lease, reason, message, kind string, before time.Duration, count int32) {
	t.Helper()
	at := metav1.NewTime(testNow.Add(-before).Truncate(time.Second))
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem},
		InvolvedObject: corev1.ObjectReference{Kind: "Lease", Name: lease, Namespace: metav1.NamespaceSystem},
		Reason:         reason, Message: message, Type: kind, FirstTimestamp: at, LastTimestamp: at, Count: count,
	}
	if err := c.Tracker().Add(event); err != nil {
		t.Fatal(err)
	}
}

// TestEvents: events of Leases and of Kubernetes are sorted, and each appears once, whatever its
// wording.
func TestEvents(t *testing.T) {
	l := newLeases(t, testPlan(t))
	l.at("01").Spec.HolderIdentity, l.at("01").Spec.RenewTime.Time = ptr.To(""), testNow.Add(-10*time.Minute)
	l.at("02").Spec.RenewTime.Time = testNow.Add(-20 * time.Minute)
	l.at("03").Spec.AcquireTime.Time = testNow.Add(-2 * time.Hour)
	c := newCluster(l)
	c.recordEvent(t, "a", "flotilla-namespaces-00", "Obtained", "it has begun term 3", corev1.EventTypeNormal, 30*time.Minute, 1)
	c.recordEvent(t, "b", "flotilla-namespaces-00", "Lost", "lost term 2: \x1b[31m", corev1.EventTypeWarning, 31*time.Minute, 4)
	c.recordEvent(t, "c", "flotilla-namespaces-00", "Lost", "lost term 2: \x1b[31m", corev1.EventTypeWarning, 31*time.Minute, 4)
	c.recordEvent(t, "d", "flotilla-namespaces-01", "Acquired", "acquired for term 4", corev1.EventTypeNormal, 50*time.Minute, 1)
	c.recordEvent(t, "e", "kube-scheduler", "LeaderElection", "somebody else's", corev1.EventTypeNormal, time.Minute, 1)
	conn := &connection{target: Target{Fleet: testFleet, Namespace: metav1.NamespaceSystem}, client: c.Clientset, leases: c.CoordinationV1().Leases(metav1.NamespaceSystem), clock: c.clock}
	v, err := conn.events(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	// Those that explain the others: of the leader lock, and of a shard that has left the plan.
	l.leaderLock("flotilla_fleet")
	explained := newCluster(l)
	explained.recordEvent(t, "a", "kube-controller-manager", "LeaderLockLost", "lost", corev1.EventTypeWarning, time.Minute, 1)
	explained.recordEvent(t, "b", "flotilla-namespaces-g2-07", "Lost", "lost term 2", corev1.EventTypeWarning, time.Minute, 1)
	explained.recordEvent(t, "c", "kube-scheduler", "LeaderElection", "somebody else's", corev1.EventTypeNormal, time.Minute, 1)
	conn.client = explained.Clientset
	conn.leases = explained.CoordinationV1().Leases(metav1.NamespaceSystem)
	r, err := conn.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	recorded, err := conn.recorded(t.Context(), r)
	if err != nil || len(recorded) != 2 {
		t.Errorf("recorded events %v, %v; want those of the leader lock and of the shard that is gone", recorded, err)
	}
	golden(t, "events", v, tableEvents)
	for _, e := range v.Events {
		if e.Message != status.Plain(e.Message) {
			t.Errorf("%q", e.Message)
		}
	}
	golden(t, "events-none", EventsView{Fleet: testFleet, Since: testNow, Events: []status.Event{}, Missing: "left out"}, tableEvents)
}

// TestAnswerIsLost restarts the API server in the middle of a write: the answer is lost, whether or
// not the write was carried out, and nothing is answered for a while.
func TestAnswerIsLost(t *testing.T) {
	plan := testPlan(t)
	edited := document(t, split(plan))
	lost := io.ErrUnexpectedEOF
	for command, said := range map[string]string{
		"drain flotilla-1 --wait=false": "Member flotilla-1 is drained\n",
		"plan apply -f -":               "Plan generation 4 is written\n",
	} {
		for name, test := range map[string]struct {
			arrives bool
			down    time.Duration
			writes  int
			want    string // part of the error; none if the command must succeed
			later   bool   // somebody has written a later plan when the server is back
		}{
			"the write was carried out":      {true, 3 * time.Second, 1, "", false},
			"it was not":                     {false, 3 * time.Second, 2, "", false},
			"it stays down":                  {true, time.Hour, 1, "it is not known whether it was written", false},
			"the plan is a later one by now": {true, 3 * time.Second, 1, "it is not known whether plan generation 4 was written", true},
		} {
			if test.later && !strings.HasPrefix(command, "plan") {
				continue
			}
			t.Run(command+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l := newLeases(t, plan)
					l.age(time.Since(testNow))
					c := newCluster(l)
					c.clock = clock.RealClock{} // virtual
					var up time.Time
					c.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
						return time.Now().Before(up), nil, lost
					})
					c.PrependReactor("update", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
						if !up.IsZero() {
							return false, nil, nil
						}
						up = time.Now().Add(test.down)
						if test.arrives {
							update := action.(clienttesting.UpdateAction)
							lease := update.GetObject().(*coordinationv1.Lease)
							if test.later {
								later := clone(plan)
								later.Generation = 5
								var err error
								if lease, err = leaseapi.WithPlan(testFleet, lease, later); err != nil {
									t.Error(err)
								}
							}
							if err := c.Tracker().Update(update.GetResource(), lease, update.GetNamespace()); err != nil {
								t.Error(err)
							}
						}
						return true, nil, lost
					})
					out, _, err := c.run(t, edited, strings.Fields(command)...)
					if test.want == "" && (err != nil || !strings.Contains(out, said)) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, lost)) {
						t.Errorf("%v\n%s", err, out)
					}
					if c.writes() != test.writes {
						t.Errorf("%d writes, want %d", c.writes(), test.writes)
					}
				})
			})
		}
	}
}
