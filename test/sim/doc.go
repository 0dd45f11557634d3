// Package sim runs whole fleets against a Lease store in memory, in virtual time, through faults that a seed decides. It
// holds tests alone: see TestSim.
//
// # What is simulated
//
// Three to five members, each a fleet.Member with a client, a clock and work of its own. Between them stand a Lease store
// (pkg/election/leasetest) and an API server that takes the writes of the work and remembers who sent them, in which term,
// and when. Faults: a process that is killed (what it had sent arrives later) or suspended (the world goes on), with timers
// that may have stood still; requests and answers that are lost, slow, or refused; watches that lag and break; clocks that
// differ in speed by up to 1.45; members that come and go within seconds; Leases that somebody deletes, empties, forges or
// fills with nonsense, that of the plan included; planned stops; an operator who splits and merges ranges, moves their
// boundaries, and drains members and takes that back while all of this goes on; work that does not start, does not get ready, or does not end.
//
// # What is judged
//
// After every step, and what it takes to be excused:
//
//   - No two members hold valid claims on one shard. Excused for [excuse] after somebody cleared or forged the holder, or
//     deleted the Lease twice: package election documents that.
//   - No work begins while other work runs on some of the same controllers and namespaces, whichever plan it is of, unless
//     that one's claim has ended and its clock runs at another speed, or it had been suspended.
//   - No write leaves a process after its claim has ended. Those on the way are counted.
//   - Nobody clears a Lease while its own work runs.
//   - Work that begins with caches that were prepared has seen every write that was accepted before.
//   - Terms rise with every acquisition. Excused after a deletion, and after somebody has lowered the term.
//   - No process is told to exit, unless its work ignores its context or it had been suspended.
//   - In the end, within a bounded time, each shard is run by exactly one member, and by none that is drained if there are others; what was built has been run or
//     closed, everybody can leave, and no goroutine is left.
//
// What shards of different plans owe each other is excused as well for [excuse] after the Lease of one of them was deleted.
//
// # What a seed decides
//
// The seed decides all faults, times and latencies. It does not decide in which order the Go scheduler runs goroutines that
// are due at the same virtual moment, so a rare failure may need -repeat to come back.
package sim
