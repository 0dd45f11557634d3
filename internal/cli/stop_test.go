package cli

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// stopMark returns the stop annotation of the plan's Lease.
func (c *cluster) stopMark(t *testing.T) string {
	t.Helper()
	lease, err := c.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), leaseapi.PlanLease(testFleet), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return lease.Annotations[leaseapi.StopAnnotation]
}

// TestStopAndStart stops and starts the fleet, each twice: the second time must write nothing.
func TestStopAndStart(t *testing.T) {
	c := newCluster(newLeases(t, testPlan(t)))
	const mark = "2027-01-02T03:04:05Z by alice"
	for _, test := range []struct {
		args   string
		want   string
		writes int
		mark   string
	}{
		{"start", "The fleet is not stopped\n", 0, ""},
		{"stop --by=alice --dry-run", "Dry run: the fleet would be stopped\n", 0, ""},
		{"stop --by=alice --wait=0", "The fleet is to stop, since 2027-01-02T03:04:05Z by alice\n", 1, mark},
		{"stop --by=bob --wait=0", "The fleet is stopped already since 2027-01-02T03:04:05Z by alice\n", 1, mark},
		{"start --dry-run", "Dry run: the fleet would be started\n", 1, mark},
		{"start --wait=0", "The fleet is to start\n", 2, ""},
	} {
		out, _, err := c.run(t, "", strings.Fields(test.args)...)
		if err != nil || out != test.want || c.writes() != test.writes || c.stopMark(t) != test.mark {
			t.Errorf("%s: %v, %d writes, marked %q\n%s", test.args, err, c.writes(), c.stopMark(t), out)
		}
	}
	c.conflicts(3, func() {})
	if _, _, err := c.run(t, "", "stop", "--wait=0"); err != nil || !strings.Contains(c.stopMark(t), " by ") {
		t.Errorf("%v, marked %q", err, c.stopMark(t))
	}
}

// Stop overwrites a stop that nobody can read, and start removes it.
func TestStopOverwritesAnUnreadableStop(t *testing.T) {
	for args, want := range map[string]string{"stop --by=alice --wait=0": "2027-01-02T03:04:05Z by alice", "start --wait=0": ""} {
		l := newLeases(t, testPlan(t))
		l["flotilla-plan"].Annotations[leaseapi.StopAnnotation] = "true"
		c := newCluster(l)
		if out, _, err := c.run(t, "", strings.Fields(args)...); err != nil || c.stopMark(t) != want {
			t.Errorf("%s: %v, marked %q\n%s", args, err, c.stopMark(t), out)
		}
	}
}

// TestStopRefused checks that nothing is written, and that the error says why.
func TestStopRefused(t *testing.T) {
	for _, test := range []struct {
		args   []string
		change func(leases)
		want   string
	}{
		{[]string{"stop", "x"}, func(leases) {}, "unknown command"},
		{[]string{"stop", "--wait=-1s"}, func(leases) {}, "--wait=-1s: must be from 0s to 24h0m0s"},
		{[]string{"start", "--wait=25h"}, func(leases) {}, "--wait=25h0m0s: must be from 0s to 24h0m0s"},
		{[]string{"stop", "--dry-run", "--wait"}, func(leases) {}, "--wait: must not be given with --dry-run"},
		{[]string{"stop", "--by=a\nb"}, func(leases) {}, "--by: "},
		{[]string{"stop"}, func(l leases) { clear(l) }, `fleet "flotilla" has no plan on Lease flotilla-plan`},
		{[]string{"start"}, func(l leases) { clear(l) }, `fleet "flotilla" has no plan on Lease flotilla-plan`},
	} {
		l := newLeases(t, testPlan(t))
		test.change(l)
		c := newCluster(l)
		if _, _, err := c.run(t, "", test.args...); err == nil || !strings.Contains(err.Error(), test.want) || c.writes() > 0 {
			t.Errorf("%q: %v, %d writes, want %q", test.args, err, c.writes(), test.want)
		}
	}
}

// leaderLock makes the members wait for Lease kube-controller-manager, which has this holder.
func (l leases) leaderLock(holder string) {
	for _, name := range []string{"flotilla-0", "flotilla-1"} {
		l[leaserecord.MemberLease(testFleet, name)].Annotations[leaseapi.LeaderLocksAnnotation] = "kube-controller-manager"
	}
	l.hold("kube-controller-manager", "x", 7).Spec.HolderIdentity = ptr.To(holder)
}

// still makes the members obey the stop on the plan's Lease.
func (l leases) still(members ...string) {
	for _, name := range members {
		l[leaserecord.MemberLease(testFleet, name)].Annotations[leaseapi.StillAnnotation] = l[leaseapi.PlanLease(testFleet)].Annotations[leaseapi.StopAnnotation]
	}
}

// gone releases everything, as when all members have ended.
func (l leases) gone() {
	l.free()
	for _, name := range []string{"flotilla-0", "flotilla-1"} {
		l[leaserecord.MemberLease(testFleet, name)].Spec.HolderIdentity = ptr.To("")
	}
}

// free releases all shards.
func (l leases) free() {
	for _, lease := range l {
		if lease.Labels[leaseapi.RingLabel] != "" {
			lease.Spec.HolderIdentity = ptr.To("")
		}
	}
}

// TestStopAndStartWait: the commands wait until everything has happened, or until their limit, or
// until somebody does the opposite.
func TestStopAndStartWait(t *testing.T) {
	for _, test := range []struct {
		name, args     string
		before, change func(leases)
		progress, want string
		fails          bool
	}{
		{"stopped", "stop", func(leases) {}, func(l leases) { l.still("flotilla-0", "flotilla-1"); l.free(); l.leaderLock("stock_1") },
			"shards are still held, or may be, by member flotilla-0, which holds 3; member flotilla-1, which holds 3",
			"No member runs anything after 7.5s; the leader lock, Lease kube-controller-manager, is held by stock_1\n", false},
		{"nobody follows", "stop", func(leases) {}, func(l leases) { l.still("flotilla-0", "flotilla-1"); l.free(); l.leaderLock("") },
			"", "the leader lock, Lease kube-controller-manager, is free: nobody runs its controllers\n", false},
		{"stock follows", "stop", func(leases) {}, func(l leases) {
			l.still("flotilla-0", "flotilla-1")
			l.free()
			l.leaderLock("")
		}, "nobody has taken the leader lock, Lease kube-controller-manager, yet",
			"No member runs anything after 10.5s; the leader lock, Lease kube-controller-manager, is held by stock_1\n", false},
		{"killed at once, stock leads", "stop", func(l leases) { l.kill(); l.leaderLock("stock_1") }, func(leases) {},
			"by member flotilla-0, which holds 3", "the leader lock, Lease kube-controller-manager, is held by stock_1\n", false},
		{"killed at once", "start --wait=20s", func(l leases) { l.kill() }, func(leases) {},
			"no member renews its Lease", "waited 20s for the fleet to start", true},
		{"one does not stop", "stop --wait=20s", func(leases) {}, func(l leases) { l.still("flotilla-0"); l.free() },
			"", "waited 20s for the fleet to stop; the stop stays in force: shards are still held, or may be, by member flotilla-1, which holds 0", true},
		{"leader lock not released", "stop --wait=20s", func(leases) {}, func(l leases) { l.still("flotilla-0", "flotilla-1"); l.free() },
			"", "the leader lock, Lease kube-controller-manager, is still held by the fleet", true},
		{"no member lives, stock leads", "stop", func(l leases) { l.gone(); l.leaderLock("stock_1") }, func(leases) {},
			"", "No member runs anything after 0s; the leader lock, Lease kube-controller-manager, is held by stock_1\n", false},
		{"no member lives, nobody leads", "stop", func(l leases) {
			l.gone()
			l["kube-controller-manager"].Spec.RenewTime = &metav1.MicroTime{Time: testNow.Add(-time.Minute)}
		}, func(leases) {}, "", ": nobody may be running its controllers\n", false},
		{"started meanwhile", "stop", func(leases) {}, func(l leases) { delete(l["flotilla-plan"].Annotations, leaseapi.StopAnnotation) }, "", "somebody has started it", true},
		{"started", "start", func(l leases) {
			l["flotilla-plan"].Annotations[leaseapi.StopAnnotation] = "2027-01-02T03:04:05Z by alice"
			l.still("flotilla-0", "flotilla-1")
			l.free()
			l.leaderLock("stock_1")
		}, func(l leases) {
			for _, lease := range l {
				if lease.Labels[leaseapi.RingLabel] != "" {
					lease.Spec.HolderIdentity = ptr.To("flotilla-0_0123")
				}
			}
			l.leaderLock("flotilla_fleet")
		}, "the leader lock, Lease kube-controller-manager, is held by stock_1, which has to be stopped", "Every shard runs after 7.5s; the leader lock, Lease kube-controller-manager, is held by the fleet\n", false},
		{"started by an earlier command", "start --wait=20s", func(l leases) {
			l.still("flotilla-0", "flotilla-1")
			l.free()
			l.leaderLock("stock_1")
		}, func(leases) {}, "", "waited 20s for the fleet to start", true},
		{"stopped meanwhile", "start", func(l leases) { l["flotilla-plan"].Annotations[leaseapi.StopAnnotation] = "x"; l.free() },
			func(l leases) { l["flotilla-plan"].Annotations[leaseapi.StopAnnotation] = "x" }, "", "somebody has stopped it", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeases(t, testPlan(t))
				l.leaderLock("flotilla_fleet")
				test.before(l)
				l.age(time.Since(testNow))
				c := newCluster(l)
				c.clock = clock.RealClock{} // virtual
				// Between two looks: at one, either could come first.
				now := func(change func(leases)) func() {
					return func() {
						c.change(t, func(l leases) {
							change(l)
							l["kube-controller-manager"].Spec.RenewTime = ptr.To(metav1.NowMicro())
						})
					}
				}
				defer time.AfterFunc(7*time.Second+waitInterval/2, now(test.change)).Stop()
				if test.name == "stock follows" {
					defer time.AfterFunc(10*time.Second+waitInterval/2, now(func(l leases) { l.leaderLock("stock_1") })).Stop()
				}
				defer c.beat(t)()
				out, progress, err := c.run(t, "", strings.Fields(test.args)...)
				if !strings.Contains(progress, test.progress) {
					t.Errorf("progress\n%s, want %q in it", progress, test.progress)
				}
				if test.fails && (err == nil || !strings.Contains(err.Error(), test.want)) || !test.fails && (err != nil || !strings.HasSuffix(out, test.want)) {
					t.Errorf("%v\n%s, want %q", err, out, test.want)
				}
			})
		})
	}
}

// beat renews every Lease that somebody holds every second, unless it is old, until the function
// that it returns is called.
func (c *cluster) beat(t *testing.T) (stop func()) {
	ticker, ended := time.NewTicker(time.Second), make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			c.change(t, func(l leases) {
				for _, lease := range l {
					if *lease.Spec.HolderIdentity != "" && time.Since(lease.Spec.RenewTime.Time) < 10*time.Second {
						lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
					}
				}
			})
		}
	}()
	return func() {
		ticker.Stop()
		close(ended)
	}
}

// kill makes all members die, five minutes ago.
func (l leases) kill() {
	l.age(-5 * time.Minute)
	for name, lease := range l {
		if strings.Contains(name, "-member-") {
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, leaserecord.ProtocolAnnotation, "2")
		}
	}
}

// change reads the Leases, changes them, and writes them back.
func (c *cluster) change(t *testing.T, change func(leases)) {
	resource := coordinationv1.SchemeGroupVersion.WithResource("leases")
	list, err := c.Tracker().List(resource, coordinationv1.SchemeGroupVersion.WithKind("Lease"), metav1.NamespaceSystem)
	if err != nil {
		t.Error(err)
		return
	}
	l := leases{}
	for _, lease := range list.(*coordinationv1.LeaseList).Items {
		l[lease.Name] = lease.DeepCopy()
	}
	change(l)
	for _, lease := range l {
		if err := c.Tracker().Update(resource, lease, metav1.NamespaceSystem); err != nil {
			if err := c.Tracker().Add(lease); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestStoppedOutputs shows a fleet that is stopped while a stock controller manager leads, with
// exit status 0.
func TestStoppedOutputs(t *testing.T) {
	l := newLeases(t, testPlan(t))
	l["flotilla-plan"].Annotations[leaseapi.StopAnnotation] = "2027-01-02T03:00:00Z by alice@laptop"
	l.still("flotilla-0", "flotilla-1")
	l.free()
	l.leaderLock("control-plane-1_0123")
	golden(t, "status-stopped", status.Of(l.read()), tableStatus(false, false))
	if out, code := newCluster(l).statusOf(t, "status"); code != 0 || !strings.Contains(out, "Note: Stopped: ") {
		t.Errorf("exit status %d\n%s", code, out)
	}
}
