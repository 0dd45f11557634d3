// Package sim runs whole fleets against a Lease store in memory, in virtual time, through faults
// that a seed decides. It holds tests alone: see TestSim.
//
// # What is simulated
//
// Three to five members, each a fleet.Member with a client, a clock and work of its own. Between
// them stand a Lease store (pkg/election/leasetest) and an API server that takes the writes of the
// work and remembers who sent them, under which claim, and when. Faults: a process that is killed
// (what it had sent arrives later) or suspended (the world goes on), with timers that may have
// stood still; requests and answers that are lost, slow, or refused; watches that lag and break;
// members that come and go within seconds; Leases that somebody deletes, empties, forges or fills
// with nonsense, that of the plan included; planned stops; an operator who splits and merges
// ranges, moves their boundaries, and drains members and takes that back while all of this goes on;
// work that does not start, does not get ready, or does not end.
//
// Some worlds have more, see features:
//
//   - clocks that differ in speed by up to 1.45;
//   - leader locks: stock controller managers, which are client-go's own elector, compete for the
//     Lease that the fleet waits for, and go on for a while after they have let go of it;
//   - the API server's fence (deploy/fence): it refuses the credentials of marked incarnations as
//     far as its own watch has brought the marks, and machines are paused with their clocks, so
//     that a member believes in claims that others have;
//   - standbys, whose caches are held against the present;
//   - rings: a second one of namespaces, members that serve some, and controllers that the operator
//     moves between them;
//   - the planner, with namespaces whose weights change;
//   - a shutdown timeout.
//
// # What is judged
//
// After every step. Each invariant has a name, which a failure prints, and is listed in invariants;
// each has a planted bug that it, and no other, must find, see docs/design/planted.md. What it
// takes to be excused:
//
//   - For [excuse] after somebody cleared or forged a holder, or deleted a Lease twice: package
//     election documents that. So does what shards of different plans owe each other after the
//     Lease of one of them was deleted.
//   - Work may go on beside its successor's only by clocks that differ, and for no longer than the
//     difference between a lease duration by its clock and by the fastest.
//   - A write may be taken beside a successor's work only if it was on the wire when the Lease was
//     released, and the holder said that it did not know what became of it; or if it died, by
//     clocks so different that the time on the wire does not fit between its renew deadline and the
//     successor's lease duration.
//   - For [unwell] after a process was suspended or resumed its work may be late to end. Its writes
//     are not excused.
//   - Where the API server enforces the fence, not even those of a process whose clock stood still.
//
// In the end, within a bounded time, each shard is run by exactly one member, the one that the
// rings want; everybody can leave in the time that the handoff timeout and the shutdown timeout
// say; what was built has been run or closed, and no goroutine is left. The totals over all seeds
// have floors: a kind of event that is not reached any more fails as well.
//
// # What a seed decides
//
// The seed decides all faults, times and latencies. It does not decide in which order the Go
// scheduler runs goroutines that are due at the same virtual moment, so a rare failure may need
// -repeat to come back.
package sim
