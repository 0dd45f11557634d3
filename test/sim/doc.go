// Package sim runs whole fleets against an in-memory Lease store, in virtual time, through faults
// that a seed chooses. It has only tests: see TestSim.
//
// # What is simulated
//
// Three to five members, each a fleet.Member with its own client, clock and work. Between them are
// a Lease store (pkg/election/leasetest) and an API server. The API server accepts the work's
// writes and records who sent them, under which claim, and when. The faults:
//
//   - a process is killed (its last writes arrive later) or suspended (everything else goes on),
//     and its timers may have stood still;
//   - requests and answers are lost, slow or refused; watches lag and break;
//   - members come and go within seconds;
//   - somebody deletes, empties or forges a Lease, or fills it with nonsense, the plan's included;
//   - planned stops;
//   - meanwhile an operator splits and merges ranges, moves their boundaries, and drains and
//     undrains members;
//   - work does not start, does not get ready, or does not end.
//
// Some seeds add more, see features:
//
//   - clocks that differ in speed by up to 1.45;
//   - leader locks: stock controller managers, which use client-go's own elector, compete for the
//     Lease that the fleet waits for, and keep working for a while after they release it;
//   - the API server's fence (deploy/fence), which refuses the credentials of marked incarnations
//     once its own watch has delivered the marks; machines are paused together with their clocks,
//     so that a member believes in claims that others hold;
//   - standbys, whose caches are compared with the current state;
//   - rings: a second ring of namespaces, members that serve only some rings, and controllers that
//     the operator moves between them;
//   - the planner, with namespaces whose weights change;
//   - a shutdown timeout.
//
// # What is judged
//
// The judge checks the invariants after every step. Each has a name, which a failure prints, and is
// listed in invariants. For each there is a planted bug that it, and no other, must find, see
// docs/design/planted.md. The exceptions:
//
//   - For [excuse] after somebody cleared or forged a holder, or deleted a Lease twice, as package
//     election documents. The same holds for shards of different plans after the Lease of one of
//     them was deleted.
//   - Work may overlap its successor's only if clocks differ, and for no longer than the difference
//     between a lease duration by its clock and by the fastest.
//   - A write may be accepted beside a successor's work only if it was in transit when the Lease
//     was released, and the holder said that it did not know the outcome. Or the holder died, and
//     clocks differ so much that the time in transit does not fit between its renew deadline and
//     the successor's lease duration.
//   - For [unwell] after a process was suspended or resumed, its work may end late. Its writes are
//     not excused.
//   - Where the API server enforces the fence, not even writes of a process whose clock stood still
//     are excused.
//
// At the end, within a bounded time, exactly one member runs each shard, its owner. Every member
// can leave within the handoff timeout and the shutdown timeout. Every built instance was run or
// closed, and no goroutine is left. The totals over all seeds have floors, so a kind of event that
// stops happening fails as well.
//
// # What a seed decides
//
// The seed decides all faults, times and latencies. It does not decide in which order the Go
// scheduler runs goroutines that are due at the same virtual moment, so a rare failure may need
// -repeat to reproduce.
package sim
