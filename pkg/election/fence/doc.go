// Package fence refuses writes that are not backed by a valid claim. A [Fence] stands before the
// transport of all clients of one shard. It knows no Leases: what a claim is, [Claim] says.
//
// # Guarantees
//
//   - A mutating request is sent only if the claim was valid at a reading of the clock made for it,
//     and is given up when the claim ends, or when its Lease expires.
//   - Every request says in its User-Agent under which claim it was made.
//   - What was written last, and whether that is known, can be asked for afterwards ([Writes]).
//   - It never waits, and is safe for concurrent use.
//
// # Non-guarantees
//
//   - A request that has left the process cannot be called back: the server may carry it out until
//     it gives up on it.
//   - A goroutine that is suspended between the check and the system call writes when it wakes up.
package fence
