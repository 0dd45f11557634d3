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
	// AdaptNever makes the planner leave controllers where they are, whatever the members' versions
	// have.
	AdaptNever = bug("adapt_never")
	// PredecessorsIgnored makes a shard run while live Leases of an older plan generation cover
	// some of it.
	PredecessorsIgnored = bug("predecessors_ignored")
	// AptnessIgnored gives shards to members that know a controller but cannot run it where the
	// plan has it.
	AptnessIgnored = bug("aptness_ignored")
	// AskIgnored makes a holder keep a shard that its next owner asks for.
	AskIgnored = bug("ask_ignored")
	// DrainIgnored gives shards to drained members.
	DrainIgnored = bug("drain_ignored")
	// DrainUnbounded leaves the fence open to work that does not return after it was asked to stop.
	DrainUnbounded = bug("drain_unbounded")
	// ExpiryEarly lists a member as ended after half of its Lease's duration.
	ExpiryEarly = bug("expiry_early")
	// FenceOff makes the fence let requests pass after the claim has ended.
	FenceOff = bug("fence_off")
	// LeaderLockDelayIgnored makes a fleet begin as soon as it holds the leader locks.
	LeaderLockDelayIgnored = bug("leader_lock_delay_ignored")
	// LeaderLockIgnored makes members claim shards before they hold the leader locks.
	LeaderLockIgnored = bug("leader_lock_ignored")
	// GenerationKept writes a plan with the generation of its predecessor.
	GenerationKept = bug("generation_kept")
	// SuccessionStale makes a shard not wait until its caches have seen the last writes of its
	// predecessors.
	SuccessionStale = bug("succession_stale")
	// LackingOwner leaves a group with a member whose build lacks some of it, while another's has
	// all.
	LackingOwner = bug("lacking_owner")
	// PreflightHasty makes a member use the Leases as it knows them, though they may be from before its
	// claim.
	PreflightHasty = bug("preflight_hasty")
	// LostLeaseIgnored hides the end of a lost claim from its work.
	LostLeaseIgnored = bug("lost_lease_ignored")
	// MarkSkipped makes nobody fence a dead member in the API server.
	MarkSkipped = bug("mark_skipped")
	// PreparedLeaked does not close work that was prepared and is not wanted.
	PreparedLeaked = bug("prepared_leaked")
	// RangeOffByOne makes a range contain its end, which belongs to the next one.
	RangeOffByOne = bug("range_off_by_one")
	// ReadyUnsaid makes a successor not say that it is ready.
	ReadyUnsaid = bug("ready_unsaid")
	// ReleaseBeforeStop treats a draining claim as drained, and so releases its Lease, while its
	// work still runs.
	ReleaseBeforeStop = bug("release_before_stop")
	// ReplanRestless makes the planner change the plan again without a pause.
	ReplanRestless = bug("replan_restless")
	// RingsIgnored gives shards to members that do not serve their ring.
	RingsIgnored = bug("rings_ignored")
	// RunUnclaimed runs what was prepared before its shard is claimed.
	RunUnclaimed = bug("run_unclaimed")
	// ShutdownIgnored gives work that does not return a lease duration, whatever the shutdown
	// timeout.
	ShutdownIgnored = bug("shutdown_ignored")
	// StandbyStale runs what a standby has prepared without checking what was written since.
	StandbyStale = bug("standby_stale")
	// StrikeOutlived makes a member keep its claims although it has been listed as ended, or has
	// not renewed in time.
	StrikeOutlived = bug("strike_outlived")
	// StuckEarly treats work as stuck as soon as it was asked to stop.
	StuckEarly = bug("stuck_early")
	// StuckUntold lets work that does not return go on for ever.
	StuckUntold = bug("stuck_untold")
	// TakenUnstruck takes a Lease although nobody has listed its holder as ended.
	TakenUnstruck = bug("taken_unstruck")
	// TermKept acquires a Lease with the term of its last holder.
	TermKept = bug("term_kept")
	// TouchForever writes a Lease over and over once its annotations have changed.
	TouchForever = bug("touch_forever")
	// UnansweredForgotten does not record that a write was sent and not answered.
	UnansweredForgotten = bug("unanswered_forgotten")

	eventDropped = bug("event_dropped")
)

var events atomic.Uint64

// DropEvent reports whether an informer should skip the current event: one in fifty.
func DropEvent() bool { return eventDropped && events.Add(1)%50 == 0 }

var known []string

// bug reports whether the bug with this name is on.
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
