package main

import (
	"context"
	"slices"
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
	// clean faults only start and end processes of the fleet: if there are no others, no write may
	// be late, in flight or undecided.
	clean bool
	make  func(*environment) fault
}

// faultKinds returns the catalogue.
func faultKinds() []faultKind {
	return append([]faultKind{
		{name: "kill", stock: true, cheap: true, clean: true, make: func(env *environment) fault { return &killFault{env: env} }},
		{name: "stop", stock: true, cheap: true, make: func(env *environment) fault { return &stopFault{env: env} }},
		{name: "stop-in-burst", stock: true, make: func(env *environment) fault { return &stopFault{env: env, burst: true} }},
		{name: "rolling", stock: true, cheap: true, orderly: true, clean: true, make: func(env *environment) fault { return &rollingFault{env: env} }},
		{name: "scale", cheap: true, orderly: true, clean: true, make: func(env *environment) fault { return &scaleFault{env: env} }},
		{name: "cut", cheap: true, make: func(env *environment) fault { return &networkFault{env: env, mode: harness.Cut} }},
		{name: "cut-late", named: true, make: func(env *environment) fault { return &networkFault{env: env, mode: harness.Late} }},
		{name: "cut-replies", make: func(env *environment) fault { return &networkFault{env: env, mode: harness.CutReplies} }},
		{name: "half-open", make: func(env *environment) fault { return &networkFault{env: env, mode: harness.HalfOpen} }},
		{name: "stranded", make: func(env *environment) fault { return &networkFault{env: env, mode: harness.Stranded} }},
		{name: "slow", make: func(env *environment) fault { return &networkFault{env: env, mode: harness.Slow} }},
		{name: "apiserver-kill", cheap: true, make: func(env *environment) fault { return &apiServerFault{env: env} }},
		{name: "apiserver-outage", make: func(env *environment) fault { return &apiServerFault{env: env, outage: true} }},
		{name: "etcd-pause", make: func(env *environment) fault { return &etcdFault{env: env, stall: pause} }},
		{name: "etcd-deadline", make: func(env *environment) fault { return &etcdFault{env: env, stall: deadline} }},
		{name: "etcd-outage", make: func(env *environment) fault { return &etcdFault{env: env, stall: outage} }},
		{name: "errors", make: func(env *environment) fault { return &stormFault{env: env} }},
		{name: "watches", cheap: true, make: func(env *environment) fault { return &stormFault{env: env, watches: true} }},
		{name: "lease-deleted", cheap: true, make: func(env *environment) fault { return &tamperFault{env: env, how: deleteLease, then: keepsClaim} }},
		{name: "lease-emptied", make: func(env *environment) fault { return &tamperFault{env: env, how: emptyLease, then: newClaim} }},
		{name: "lease-forged", make: func(env *environment) fault { return &tamperFault{env: env, how: forgeLease, then: runsOut} }},
		{name: "lease-parked", make: func(env *environment) fault { return &tamperFault{env: env, how: parkLease, then: runsOut} }},
		{name: "lease-nonsense", make: func(env *environment) fault { return &tamperFault{env: env, how: spoilLease, then: keepsClaim} }},
		{name: "member-forged", make: func(env *environment) fault { return &memberFault{env: env} }},
		{name: "plan-spoilt", make: func(env *environment) fault { return &planFault{env: env} }},
		{name: "leader-lock-deleted", make: func(env *environment) fault { return &leaderLockFault{env: env, how: deleteLease} }},
		{name: "leader-lock-emptied", make: func(env *environment) fault { return &leaderLockFault{env: env, how: emptyLease} }},
		{name: "leader-lock-forged", make: func(env *environment) fault { return &leaderLockFault{env: env, how: forgeLease, taken: true} }},
		{name: "stock-beside", make: func(env *environment) fault { return &stockFault{env: env} }},
		{name: "twin", make: func(env *environment) fault { return &twinFault{env: env} }},
		{name: "other-shards", cheap: true, make: func(env *environment) fault { return &shardsFault{env: env} }},
		{name: "versions", orderly: true, make: func(env *environment) fault { return &versionFault{env: env} }},
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

// allClean reports whether all the faults with these names are clean.
func allClean(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !faultByName(name).clean })
}

func faultByName(name string) faultKind {
	for _, k := range faultKinds() {
		if k.name == name {
			return k
		}
	}
	return faultKind{name: name}
}
