package sim

// planting is a bug, or a mistake in a model, and the invariants that must find it.
type planting struct {
	name string
	// mistake is set if the mistake is in the simulation, see -mistake. Otherwise the bug is in the
	// product, see package faults.
	mistake bool
	// by is the invariant that finds the bug, and also has those that it may break besides. Any
	// other verdict is a fault of the judge.
	by   invariant
	also []invariant
}

// twoOwners is what two members break sooner or later that both believe they own a shard or the
// leader lock.
var twoOwners = []invariant{overlap, late, stale, leaderLock}

var bugs = []planting{
	{name: "expiry_early", by: oneClaim, also: twoOwners},
	{name: "taken_unstruck", by: oneClaim, also: append([]invariant{settles}, twoOwners...)},
	{name: "strike_outlived", by: fencing, also: append([]invariant{oneClaim, goroutines, entitled}, twoOwners...)},
	{name: "run_unclaimed", by: entitled, also: append([]invariant{closes}, twoOwners...)},
	{name: "predecessors_ignored", by: overlap},
	{name: "fence_off", by: fencing},
	{name: "drain_unbounded", by: drainFence},
	{name: "release_before_stop", by: release},
	{name: "succession_stale", by: stale},
	{name: "standby_stale", by: stale},
	{name: "unanswered_forgotten", by: late, also: []invariant{stale, fenced}}, // Fenced judges the same write of a process whose clock has stood still.
	{name: "mark_skipped", by: fenced},
	{name: "leader_lock_ignored", by: leaderLock},
	{name: "leader_lock_delay_ignored", by: leaderLock},
	{name: "rings_ignored", by: ringServed},
	{name: "term_kept", by: terms, also: []invariant{drains}},         // Only its term tells a drain from an earlier one.
	{name: "generation_kept", by: plans, also: []invariant{requests}}, // The planner writes it again and again.
	{name: "replan_restless", by: calm},
	{name: "adapt_never", by: everywhere, also: []invariant{settles, drained}},
	{name: "stuck_early", by: exit},
	{name: "lost_lease_ignored", by: exit, also: []invariant{fencing, goroutines}},
	// A shard whose work never returns stays where it is, or is run twice once its Lease has
	// expired.
	{name: "stuck_untold", by: drains, also: []invariant{leaves, overlap, settles, placed, drained}},
	{name: "ready_unsaid", by: settles},
	{name: "ask_ignored", by: placed, also: []invariant{drained}},
	{name: "drain_ignored", by: drained},
	{name: "shutdown_ignored", by: leaves},
	{name: "prepared_leaked", by: closes},
	{name: "touch_forever", by: requests, also: []invariant{settles}}, // It floods the watches.
	{name: "goroutine_left", by: goroutines, mistake: true},
	{name: "hasty_timers", by: livelock, mistake: true},
	{name: "slow_wire", by: wireTime, mistake: true},
	{name: "names_reused", by: operator, mistake: true},
}

// seen is a planted bug that a package's tests find.
type seen struct {
	bug, in string
	// run selects the tests; want is a regular expression that their output must match.
	run, want string
}

var seenByTests = []seen{
	{"release_before_stop", "pkg/election/membership", "TestOneHolderUnderRandomFaults", `released at .* while its work ran`},
	{"lost_lease_ignored", "pkg/election", "TestRenewDeadlineEndsClaim", `\d a stuck 8 \(renew-deadline\) since 5s`},
	{"fence_off", "pkg/election/fence", "TestFenceRefusesAfterClaim|TestFenceWithoutElection", `PUT was sent`},
	{"aptness_ignored", "pkg/fleet", "TestWhoGetsWhat", `ring cluster has the members \[a b c\], want \[b\]`},
	{"lacking_owner", "pkg/fleet", "TestWhoGetsWhat", `group old goes to "b", want one of \[a\]`},
	{"preflight_hasty", "pkg/fleet", "TestPreflightIsNotBeforeTheClaim", `began namespaces/00 while x_\S+ worked on namespaces/elsewhere`},
	{"range_off_by_one", "pkg/shard", "TestRangeBoundaries", `0x0000000000000005-0x0000000000000008 contains 8`},
	{"event_dropped", "pkg/informer", "TestLikeClientGo", `notifications \(-client-go \+ours\)`},
	// Its seeds are new each time: a range's content or its handler's events reveal the lost event
	// first.
	{"event_dropped", "pkg/informer", "TestFollowersModel", `at version \d+ a range holds |have seen version \d+ holds |added .*, and had seen version`},
}
