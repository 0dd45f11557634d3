package events

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaderlock"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// listener has what a recorder says and counts.
type listener struct {
	*Recorder
	lines   []string
	events  *record.FakeRecorder
	counted []fleet.Event
}

func listen(verbosity int) *listener {
	l := &listener{events: record.NewFakeRecorder(100)}
	l.Recorder = NewRecorder(Config{
		Fleet: "flotilla", Member: "a", Namespace: "kube-system", Events: l.events,
		Count:  func(e fleet.Event) { l.counted = append(l.counted, e) },
		Logger: funcr.New(func(_, args string) { l.lines = append(l.lines, args) }, funcr.Options{Verbosity: verbosity}),
	})
	return l
}

// said returns the Kubernetes events, one a line.
func (l *listener) said() string {
	var all []string
	for len(l.events.Events) > 0 {
		all = append(all, <-l.events.Events)
	}
	return strings.Join(all, "\n")
}

var testShard = shard.ID{Ring: "namespaces", Name: "01"}

const about = ` "lease"="flotilla-namespaces-01" "ring"="namespaces" "shard"="01" "member"="a" "term"=4`

func ofTestShard(e election.Event) fleet.Event {
	e.Name, e.Term = "flotilla-namespaces-01", 4
	return fleet.Event{ID: testShard, Event: e}
}

func lease(name string, e election.Event) fleet.Event {
	e.Name, e.Term = name, 2
	return fleet.Event{Event: e}
}

func running(a *fleet.Acquisition) fleet.Event {
	e := ofTestShard(election.Event{Type: fleet.EventRunning})
	e.Acquisition = a
	return e
}

func ended(kind election.EventType, a *fleet.Acquisition, err error) fleet.Event {
	e := ofTestShard(election.Event{Type: kind, Err: err})
	e.Acquisition = a
	return e
}

func gaveAway(h *fleet.Handover) fleet.Event {
	e := ofTestShard(election.Event{Type: election.EventReleased, Duration: 8 * time.Millisecond})
	e.Handover = h
	return e
}

// TestWhatIsSaid has every event of a fleet, and the log line at the default verbosity and the
// Kubernetes event that it makes.
func TestWhatIsSaid(t *testing.T) {
	handoff := &fleet.Acquisition{
		How: fleet.HowHandoff, Reason: fleet.ReasonRebalance, From: "b_1", Unowned: 23 * time.Millisecond,
		Phases: map[fleet.HandoffPhase]time.Duration{fleet.PhaseAsk: time.Second, fleet.PhaseAcquire: time.Millisecond, fleet.PhaseCatchUp: 2 * time.Millisecond, fleet.PhaseStart: 5 * time.Millisecond},
	}
	takeover := &fleet.Acquisition{
		How: fleet.HowTakeover, Reason: fleet.ReasonExpired, From: "b_1", Unowned: 15 * time.Second, Cold: errors.New("nothing was prepared"),
		Forgot: []string{"daemonset-controller", "horizontal-pod-autoscaler-controller"},
		Phases: map[fleet.HandoffPhase]time.Duration{fleet.PhaseStart: time.Second},
	}
	vacant := &fleet.Acquisition{How: fleet.HowVacant, Reason: fleet.ReasonNew}
	gone := errors.New("the shard is not in the plan")
	lock := func(kind election.EventType, e election.Event) fleet.Event {
		e.Type = fleet.EventLeaderLock + kind
		return lease("stock", e)
	}
	for name, tc := range map[string]struct {
		event      fleet.Event
		line, said string
	}{
		"acquired by handoff": {running(handoff),
			`"level"=0 "msg"="Acquired shard"` + about + ` "how"="handoff" "reason"="rebalance" "from"="b_1" "unowned"="23ms" "caches"="warm" "acquire"="1ms" "ask"="1s" "catch_up"="2ms" "duration"="5ms"`,
			"Normal Acquired acquired for term 4 by handoff from b_1 (rebalance); nobody could write on it for 23ms"},
		"acquired by takeover": {running(takeover),
			`"level"=0 "msg"="Acquired shard"` + about + ` "how"="takeover" "reason"="expired" "from"="b_1" "unowned"="15s" "caches"="cold" "cold"="nothing was prepared" "duration"="1s" "forgot"=["daemonset-controller" "horizontal-pod-autoscaler-controller"]`,
			"Normal Acquired acquired for term 4 by takeover from b_1 (expired); nobody could write on it for 15s; " +
				"without what they had in memory begin again: daemonset-controller, horizontal-pod-autoscaler-controller"},
		"acquired, vacant": {running(vacant),
			`"level"=0 "msg"="Acquired shard"` + about + ` "how"="vacant" "reason"="new" "unowned"="0s" "caches"="warm"`,
			"Normal Acquired acquired for term 4 while vacant (new); nobody could write on it for 0s"},
		"handed over": {gaveAway(&fleet.Handover{Reason: fleet.ReasonLeaving, To: "c_1", Drain: 12 * time.Millisecond}),
			`"level"=0 "msg"="Handed over shard"` + about + ` "reason"="leaving" "to"="c_1" "drain"="12ms" "duration"="8ms"`,
			"Normal HandedOver handed over to c_1 after term 4 (leaving); draining took 12ms"},
		"handed over late": {gaveAway(&fleet.Handover{Reason: fleet.ReasonLeaving, To: "c_1", Drain: 41 * time.Second, Overdue: 36 * time.Second}),
			`"level"=0 "msg"="Handed over shard"` + about + ` "reason"="leaving" "to"="c_1" "drain"="41s" "overdue"="36s" "duration"="8ms"`,
			"Normal HandedOver handed over to c_1 after term 4 (leaving); draining took 41s, the last 36s of it without the right to write"},
		"handed over to successors": {gaveAway(&fleet.Handover{Reason: fleet.ReasonPlan, Drain: 12 * time.Millisecond}),
			`"level"=0 "msg"="Handed over shard"` + about + ` "reason"="plan" "drain"="12ms" "duration"="8ms"`,
			"Normal HandedOver handed over to its successors after term 4 (plan); draining took 12ms"},
		"overdue": {ofTestShard(election.Event{Type: fleet.EventOverdue, Duration: 15 * time.Second}),
			`"level"=0 "msg"="Controllers have not stopped in time: their writes are refused"` + about + ` "end"="15s"`,
			"Warning DrainOverdue the controllers of term 4 were asked to stop and have not returned: their writes are refused, and the process ends in 15s unless they return"},
		"released": {gaveAway(&fleet.Handover{Reason: fleet.ReasonUnwanted}),
			`"level"=0 "msg"="Released shard"` + about + ` "reason"="unwanted" "drain"="0s" "duration"="8ms"`,
			"Normal Released released after term 4 (unwanted)"},
		"lost": {ofTestShard(election.Event{Type: election.EventEnded, Reason: election.ReasonOtherHolder, Holder: "b_1", Duration: time.Minute}),
			`"msg"="Lost shard" "error"=null` + about + ` "reason"="other-holder" "holder"="b_1" "duration"="1m0s"`,
			`Warning Lost lost term 4: other-holder (holder "b_1")`},
		"refused": {ended(fleet.EventRefused, handoff, gone),
			`"msg"="Gave shard back before it ran" "error"="the shard is not in the plan"` + about + ` "how"="handoff" "reason"="rebalance" "from"="b_1"`,
			"Warning Refused term 4 was given back before anything ran: the shard is not in the plan"},
		"abandoned":     {ended(fleet.EventAbandoned, vacant, nil), "", ""},
		"renewed":       {ofTestShard(election.Event{Type: election.EventRenewed}), "", ""},
		"started":       {ofTestShard(election.Event{Type: election.EventStarted}), "", ""},
		"draining":      {ofTestShard(election.Event{Type: election.EventDraining}), "", ""},
		"acquiring":     {ofTestShard(election.Event{Type: election.EventAcquired}), "", ""},
		"ended":         {ofTestShard(election.Event{Type: election.EventEnded, Reason: election.ReasonDrained}), "", ""},
		"asked":         {ofTestShard(election.Event{Type: election.EventAsked, Holder: "b_1"}), "", ""},
		"prepared":      {ofTestShard(election.Event{Type: fleet.EventPrepared}), "", ""},
		"ready":         {ofTestShard(election.Event{Type: fleet.EventReady}), "", ""},
		"begun":         {ofTestShard(election.Event{Type: fleet.EventBegun, Err: gone}), "", ""},
		"waiting":       {ofTestShard(election.Event{Type: election.EventWaiting, Reason: election.ReasonHeld}), "", ""},
		"conflict":      {ofTestShard(election.Event{Type: election.EventConflict, Err: gone}), "", ""},
		"write refused": {ofTestShard(election.Event{Type: fleet.EventWriteRefused, Reason: "closed"}), "", ""},
		"forgotten":     {ofTestShard(election.Event{Type: fleet.EventForgotten}), "", ""},
		"work returned": {ofTestShard(election.Event{Type: election.EventReturned, Duration: time.Second}),
			`"level"=0 "msg"="Work of the lost claim returned"` + about + ` "duration"="1s"`, ""},
		"failed": {ofTestShard(election.Event{Type: election.EventFailed, Action: election.Renew, Err: gone}),
			`"msg"="Request for the Lease failed" "error"="the shard is not in the plan"` + about + ` "action"="Renew"`, ""},
		"member's Lease": {lease("flotilla-member-a", election.Event{Type: election.EventAcquired, Duration: time.Second}),
			`"level"=0 "msg"="Acquired Lease" "lease"="flotilla-member-a" "member"="a" "term"=2 "duration"="1s"`, "Normal Acquired acquired for term 2"},
		"member's Lease lost": {lease("flotilla-member-a", election.Event{Type: election.EventEnded, Reason: election.ReasonRenewDeadline}),
			`"msg"="Lost Lease" "error"=null "lease"="flotilla-member-a" "member"="a" "term"=2 "reason"="renew-deadline" "holder"="" "duration"="0s"`,
			`Warning Lost lost term 2: renew-deadline (holder "")`},
		"member's Lease released": {lease("flotilla-member-a", election.Event{Type: election.EventReleased}),
			`"level"=0 "msg"="Released Lease" "lease"="flotilla-member-a" "member"="a" "term"=2 "duration"="0s"`, "Normal Released released after term 2"},
		"second process of a name": {lease("flotilla-member-a", election.Event{Type: election.EventWaiting, Reason: election.ReasonHeld, Holder: "a_2"}),
			`"level"=0 "msg"="Waiting for the member's Lease" "lease"="flotilla-member-a" "member"="a" "term"=2 "reason"="held" "holder"="a_2"`, ""},
		"another protocol": {lease("flotilla-member-a", election.Event{Type: election.EventWaiting, Reason: election.ReasonProtocol, Holder: "b_1", Err: gone}),
			`"msg"="Waiting to join the fleet" "error"="the shard is not in the plan" "lease"="flotilla-member-a" "member"="a" "term"=2 "reason"="protocol" "holder"="b_1"`,
			"Warning CannotJoin the shard is not in the plan"},
		"no planner": {lease("flotilla-plan", election.Event{Type: election.EventWaiting, Reason: election.ReasonHeld, Holder: "b_1"}), "", ""},
		"plan refused": {lease("flotilla-plan", election.Event{Type: fleet.EventPlanRefused, Err: gone}), "",
			"Warning PlanRefused the shard is not in the plan; the last good plan stays in force"},
		"plan refused, none in force": {lease("flotilla-plan", election.Event{Type: fleet.EventPlanRefused, Err: fmt.Errorf("%w: %w", fleet.ErrWithoutPlan, gone)}), "",
			"Warning PlanRefused no plan is in force, so no shard runs: the shard is not in the plan"},
		"plan restored": {lease("flotilla-plan", election.Event{Type: fleet.EventPlanRestored, Err: gone}),
			`"level"=0 "msg"="Put the last good plan back" "lease"="flotilla-plan" "member"="a" "term"=2 "reason"="the shard is not in the plan"`,
			"Warning PlanRestored put the last good plan back: the shard is not in the plan"},
		"plan adopted": {lease("flotilla-plan", election.Event{Type: fleet.EventPlanAdopted}), "", ""},
		"plan written": {lease("flotilla-plan", election.Event{Type: fleet.EventPlanWritten}), "", ""},
		"struck": {lease("flotilla-member-b", election.Event{Type: election.EventStruck, Holder: "b_1", Duration: time.Second}),
			`"level"=0 "msg"="Found a member dead" "lease"="flotilla-member-b" "member"="a" "term"=2 "incarnation"="b_1" "duration"="1s"`,
			"Warning MemberEnded b_1 has not renewed its Lease and is listed as ended: its shards are free"},
		"fenced": {lease("flotilla-member-b", election.Event{Type: fleet.EventFenced, Holder: "b_1", Duration: time.Second}),
			`"level"=0 "msg"="Fenced a dead member" "lease"="flotilla-member-b" "member"="a" "term"=2 "incarnation"="b_1" "duration"="1s"`,
			"Normal Fenced b_1 did not release its shards and is fenced"},
		"not fenced": {lease("flotilla-member-b", election.Event{Type: fleet.EventFenceRefused, Holder: "b_1", Err: gone}),
			`"msg"="Could not fence a dead member, its Leases have expired all the same" "error"="the shard is not in the plan" "lease"="flotilla-member-b" "member"="a" "term"=2 "incarnation"="b_1"`,
			"Warning NotFenced b_1 could not be fenced: the shard is not in the plan"},
		"leader lock held": {lock(election.EventAcquired, election.Event{Holder: "flotilla_fleet"}),
			`"level"=0 "msg"="Leader lock is held by the fleet" "lease"="stock" "member"="a" "term"=2 "duration"="0s"`, "Normal LeaderLockHeld flotilla_fleet holds it from now on"},
		"leader lock lost": {lock(election.EventEnded, election.Event{Reason: election.ReasonOtherHolder, Holder: "x"}),
			`"msg"="Leader lock lost: all claims end" "error"=null "lease"="stock" "member"="a" "term"=2 "reason"="other-holder" "holder"="x" "duration"="0s"`,
			`Warning LeaderLockLost lost: other-holder (holder "x")`},
		"leader lock waited for": {lock(election.EventWaiting, election.Event{Reason: election.ReasonHeld, Holder: "x"}),
			`"level"=0 "msg"="Waiting for the leader lock" "lease"="stock" "member"="a" "term"=2 "reason"="held" "holder"="x"`, ""},
		"leader lock cleared": {lock(leaderlock.EventSuspended, election.Event{Reason: election.ReasonCleared}),
			`"msg"="Leader lock was cleared or deleted, taking it back" "error"=null "lease"="stock" "member"="a" "term"=2 "reason"="cleared"`, ""},
		"leader lock renewed": {lock(election.EventRenewed, election.Event{}), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(0)
			l.Observe(tc.event)
			if got := strings.Join(l.lines, "\n"); got != tc.line {
				t.Errorf("logged\n%s, want\n%s", got, tc.line)
			}
			if got := l.said(); got != tc.said {
				t.Errorf("event\n%s, want\n%s", got, tc.said)
			}
			if len(l.counted) != 1 || l.counted[0] != tc.event {
				t.Errorf("counted %v", l.counted)
			}
		})
	}
}

// TestFailuresAreSaidOnce has the API server away for a while.
func TestFailuresAreSaidOnce(t *testing.T) {
	l := listen(0)
	away, forbidden := errors.New("connection refused"), apierrors.NewForbidden(schema.GroupResource{}, "x", nil)
	fail := func(id string, err error) {
		l.Observe(fleet.Event{ID: shard.ID{Ring: "r", Name: id}, Event: election.Event{Type: election.EventFailed, Name: id, Err: err}})
	}
	expect := func(what string, n int) {
		t.Helper()
		if len(l.lines) != n {
			t.Errorf("%s: %d lines, want %d:\n%s", what, len(l.lines), n, strings.Join(l.lines, "\n"))
		}
		l.lines = nil
	}
	for range 100 {
		fail("01", away)
		fail("02", away)
	}
	expect("away", 2)
	fail("01", forbidden)
	expect("another reason", 1)
	l.Observe(fleet.Event{ID: shard.ID{Ring: "r", Name: "01"}, Event: election.Event{Type: election.EventRenewed, Name: "01"}})
	fail("01", forbidden)
	fail("02", away)
	expect("again, after it went well for one", 1)
	for _, name := range []string{"01", "02"} {
		l.Observe(fleet.Event{ID: shard.ID{Ring: "r", Name: name}, Event: election.Event{Type: fleet.EventForgotten, Name: name}})
	}
	if len(l.failing) != 0 {
		t.Errorf("remembers %v", l.failing)
	}
}

// TestMoreIsSaidIfAsked has the steps between at higher verbosities.
func TestMoreIsSaidIfAsked(t *testing.T) {
	for verbosity, want := range []int{0, 4, 6} {
		l := listen(verbosity)
		for _, kind := range []election.EventType{
			election.EventAcquired, election.EventAsked, fleet.EventPrepared, fleet.EventReady, election.EventConflict, election.EventWaiting, election.EventRenewed,
		} {
			l.Observe(ofTestShard(election.Event{Type: kind}))
		}
		if len(l.lines) != want {
			t.Errorf("at verbosity %d: %d lines, want %d:\n%s", verbosity, len(l.lines), want, strings.Join(l.lines, "\n"))
		}
	}
}
