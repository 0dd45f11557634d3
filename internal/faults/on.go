//go:build planted

package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
)

// Variable names the bug that is on.
const Variable = "FLOTILLA_PLANT"

// The bugs.
var (
	// AdaptNever has the planner leave controllers where they are, whatever members' versions have.
	AdaptNever = bug("adapt_never")
	// PredecessorsIgnored has a shard run while live Leases of an older plan generation cover some
	// of it.
	PredecessorsIgnored = bug("predecessors_ignored")
	// AptnessIgnored gives shards to members that cannot run a controller where the plan has it, though they know it.
	AptnessIgnored = bug("aptness_ignored")
	// AskIgnored has a holder keep a shard that its next owner asks for.
	AskIgnored = bug("ask_ignored")
	// DrainIgnored gives shards to drained members.
	DrainIgnored = bug("drain_ignored")
	// DrainUnbounded leaves the fence open to work that does not return once it was asked to stop.
	DrainUnbounded = bug("drain_unbounded")
	// ExpiryEarly lists a member as ended after half of its Lease's duration.
	ExpiryEarly = bug("expiry_early")
	// FenceOff has the fence let requests pass after the claim has ended.
	FenceOff = bug("fence_off")
	// LeaderLockDelayIgnored has a fleet begin as soon as it holds the leader locks.
	LeaderLockDelayIgnored = bug("leader_lock_delay_ignored")
	// LeaderLockIgnored has members claim shards before they hold the leader locks.
	LeaderLockIgnored = bug("leader_lock_ignored")
	// GenerationKept writes a plan under the generation of the one that it follows.
	GenerationKept = bug("generation_kept")
	// SuccessionStale has a shard not wait until its caches have seen the last writes under its
	// predecessors.
	SuccessionStale = bug("succession_stale")
	// LackingOwner leaves a group to a member whose build does not have all of it, while another's has.
	LackingOwner = bug("lacking_owner")
	// LookHasty has a member look at the Leases as it knows them, though they may be from before its claim.
	LookHasty = bug("look_hasty")
	// LostLeaseIgnored keeps the end of a lost claim from its work.
	LostLeaseIgnored = bug("lost_lease_ignored")
	// MarkSkipped has nobody fence a dead member in the API server.
	MarkSkipped = bug("mark_skipped")
	// PreparedLeaked does not close what was prepared and is not wanted.
	PreparedLeaked = bug("prepared_leaked")
	// RangeOffByOne has a range contain its end, which belongs to the next one.
	RangeOffByOne = bug("range_off_by_one")
	// ReadyUnsaid has a successor not say that it is ready.
	ReadyUnsaid = bug("ready_unsaid")
	// ReleaseBeforeStop takes a claim that drains to have drained, so that its Lease is released, while its work still runs.
	ReleaseBeforeStop = bug("release_before_stop")
	// ReplanRestless has the planner change the plan again without a pause.
	ReplanRestless = bug("replan_restless")
	// RingsIgnored gives shards to members that do not serve their ring.
	RingsIgnored = bug("rings_ignored")
	// RunUnclaimed runs what was prepared before its shard is claimed.
	RunUnclaimed = bug("run_unclaimed")
	// ShutdownIgnored gives work that does not return a lease duration, whatever the shutdown timeout.
	ShutdownIgnored = bug("shutdown_ignored")
	// StandbyStale runs what a standby has prepared without a look at what was written since.
	StandbyStale = bug("standby_stale")
	// StrikeOutlived has a member keep its claims although it has been listed as ended, or has not
	// renewed in time.
	StrikeOutlived = bug("strike_outlived")
	// StuckEarly takes work for stuck as soon as it was asked to stop.
	StuckEarly = bug("stuck_early")
	// StuckUntold lets work that does not return go on for ever.
	StuckUntold = bug("stuck_untold")
	// TakenUnstruck takes a Lease although nobody has listed its holder as ended.
	TakenUnstruck = bug("taken_unstruck")
	// TermKept acquires a Lease with the term of its last holder.
	TermKept = bug("term_kept")
	// TouchForever writes a Lease over and over once its annotations have changed.
	TouchForever = bug("touch_forever")
	// UnansweredForgotten does not note that a write was sent and not answered.
	UnansweredForgotten = bug("unanswered_forgotten")

	eventDropped = bug("event_dropped")
)

var events atomic.Uint64

// DropEvent reports whether an informer is to pass over the event at hand: one in fifty.
func DropEvent() bool { return eventDropped && events.Add(1)%50 == 0 }

var known []string

// bug reports whether the bug of this name is on.
func bug(name string) bool {
	known = append(known, name)
	return os.Getenv(Variable) == name
}

func init() {
	if on := os.Getenv(Variable); on != "" && !slices.Contains(known, on) {
		slices.Sort(known)
		fmt.Fprintf(os.Stderr, "%s is %q, must be empty or one of %s\n", Variable, on, strings.Join(known, " "))
		os.Exit(2)
	}
}
