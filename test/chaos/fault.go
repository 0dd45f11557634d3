package main

import (
	"context"
	"time"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// fault is one thing that goes wrong. Begin and End are called once each, in this order, End also
// if Begin failed.
type fault interface {
	// Begin causes the fault. It returns what must be true from then on.
	Begin(ctx context.Context) (expectation, error)
	// End undoes the fault, except for what the fleet must undo itself.
	End(ctx context.Context) error
}

// expectation is what must be true of a fault.
type expectation struct {
	// victims are the names of the managers that the fault targets. No other manager may lose a
	// claim or end, unless everyone is set.
	victims  []string
	everyone bool
	// lasts is the least time that the fault acts.
	lasts time.Duration
	// replaced requires that other managers take over all that the victims held, while the fault
	// lasts.
	replaced bool
	// unharmed requires that the victims keep their claims too.
	unharmed bool
	// ends requires that the victims' processes end by themselves, with a status other than 0.
	ends bool
	// leaderLockMoves allows the leader lock to change hands or to be rewritten. Otherwise the
	// fleet must hold it in one term throughout, unless everyone is set.
	leaderLockMoves bool
	// progress requires that the canaries move while the fault lasts.
	progress bool
	// tampered is the Lease that somebody else writes. verify judges what happens to its holder.
	tampered *tampering
	// verify, if not nil, is called once the fleet is whole again. It checks what only this fault
	// knows.
	verify func(context.Context) error
}

// faultKind is a row of the catalogue of faults.
type faultKind struct {
	name string
	// stock faults also make sense with the stock controller manager.
	stock bool
	// cheap faults take seconds and are part of the short run.
	cheap bool
	// named faults run only if requested by name, because the fleet does not promise to survive
	// them unharmed.
	named bool
	// orderly faults move shards only as planned and without other faults, so they show how long a
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
