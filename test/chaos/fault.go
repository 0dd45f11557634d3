package main

import (
	"context"
	"time"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// fault is one thing that goes wrong. Begin and End are called once each, in this order, End also
// after Begin has failed.
type fault interface {
	// Begin makes it happen. It returns what must be true then.
	Begin(ctx context.Context) (expectation, error)
	// End undoes it, as far as that is not left to the fleet.
	End(ctx context.Context) error
}

// expectation is what must be true of a fault.
type expectation struct {
	// victims are the names of the managers that it is for. All others must neither lose a claim
	// nor end, unless everybody is hit.
	victims  []string
	everyone bool
	// lasts is how long the fault is left to act, at least.
	lasts time.Duration
	// replaced: while it lasts, other managers must come to hold all that the victims had.
	replaced bool
	// unharmed: the victims must keep their claims as well.
	unharmed bool
	// ends: the victims' processes must end by themselves, other than with status 0.
	ends bool
	// leaderLockMoves: the leader lock may change hands or be written again. Otherwise the fleet
	// must hold it all the while in one term, unless everybody is hit.
	leaderLockMoves bool
	// progress: while it lasts, the canaries must move all the same.
	progress bool
	// tampered is the Lease that somebody else writes. What becomes of its holder is for verify to
	// judge.
	tampered *tampering
	// verify, if not nil, is asked once the fleet is whole again, for what this fault alone can
	// tell.
	verify func(context.Context) error
}

// faultKind is a row of the catalogue of faults.
type faultKind struct {
	name string
	// stock: makes sense with the stock controller manager too.
	stock bool
	// cheap: takes seconds, and is part of the short run.
	cheap bool
	// named: is done only if it is asked for by name, because the fleet does not promise to get
	// over it unharmed.
	named bool
	// orderly: all that it moves is moved as planned, in good weather, so that it tells how long a
	// handoff takes.
	orderly bool
	make    func(*world) fault
}

// faultKinds returns the catalogue.
func faultKinds() []faultKind {
	return append([]faultKind{
		{name: "kill", stock: true, cheap: true, make: func(w *world) fault { return &killFault{world: w} }},
		{name: "stop", stock: true, cheap: true, make: func(w *world) fault { return &stopFault{world: w} }},
		{name: "stop-in-burst", stock: true, make: func(w *world) fault { return &stopFault{world: w, burst: true} }},
		{name: "rolling", stock: true, cheap: true, orderly: true, make: func(w *world) fault { return &rollingFault{world: w} }},
		{name: "scale", cheap: true, orderly: true, make: func(w *world) fault { return &scaleFault{world: w} }},
		{name: "cut", cheap: true, make: func(w *world) fault { return &networkFault{world: w, mode: harness.Cut} }},
		{name: "cut-late", named: true, make: func(w *world) fault { return &networkFault{world: w, mode: harness.Late} }},
		{name: "cut-replies", make: func(w *world) fault { return &networkFault{world: w, mode: harness.CutReplies} }},
		{name: "half-open", make: func(w *world) fault { return &networkFault{world: w, mode: harness.HalfOpen} }},
		{name: "slow", make: func(w *world) fault { return &networkFault{world: w, mode: harness.Slow} }},
		{name: "apiserver-kill", cheap: true, make: func(w *world) fault { return &apiServerFault{world: w} }},
		{name: "apiserver-outage", make: func(w *world) fault { return &apiServerFault{world: w, outage: true} }},
		{name: "etcd-pause", make: func(w *world) fault { return &etcdFault{world: w} }},
		{name: "etcd-outage", make: func(w *world) fault { return &etcdFault{world: w, outage: true} }},
		{name: "errors", make: func(w *world) fault { return &stormFault{world: w} }},
		{name: "watches", cheap: true, make: func(w *world) fault { return &stormFault{world: w, watches: true} }},
		{name: "lease-deleted", cheap: true, make: func(w *world) fault { return &tamperFault{world: w, how: deleteLease, then: keepsClaim} }},
		{name: "lease-emptied", make: func(w *world) fault { return &tamperFault{world: w, how: emptyLease, then: newClaim} }},
		{name: "lease-forged", make: func(w *world) fault { return &tamperFault{world: w, how: forgeLease, then: runsOut} }},
		{name: "lease-nonsense", make: func(w *world) fault { return &tamperFault{world: w, how: spoilLease, then: keepsClaim} }},
		{name: "member-forged", make: func(w *world) fault { return &memberFault{world: w} }},
		{name: "plan-spoilt", make: func(w *world) fault { return &planFault{world: w} }},
		{name: "leader-lock-deleted", make: func(w *world) fault { return &leaderLockFault{world: w, how: deleteLease} }},
		{name: "leader-lock-emptied", make: func(w *world) fault { return &leaderLockFault{world: w, how: emptyLease} }},
		{name: "leader-lock-forged", make: func(w *world) fault { return &leaderLockFault{world: w, how: forgeLease, taken: true} }},
		{name: "stock-beside", make: func(w *world) fault { return &stockFault{world: w} }},
		{name: "twin", make: func(w *world) fault { return &twinFault{world: w} }},
		{name: "other-shards", cheap: true, make: func(w *world) fault { return &shardsFault{world: w} }},
		{name: "versions", orderly: true, make: func(w *world) fault { return &versionFault{world: w} }},
	}, operatorKinds()...)
}

func anyFault(faultKind) bool { return true }

func faultNames(which func(faultKind) bool) []string {
	var names []string
	for _, k := range faultKinds() {
		if which(k) {
			names = append(names, k.name)
		}
	}
	return names
}

func faultByName(name string) faultKind {
	for _, k := range faultKinds() {
		if k.name == name {
			return k
		}
	}
	return faultKind{name: name}
}
