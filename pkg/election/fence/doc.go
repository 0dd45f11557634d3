// Package fence refuses writes that are not backed by a valid claim. A [Fence] wraps the transport
// of all clients of one shard. It knows nothing about Leases: [Claim] is all that it needs of a
// claim.
//
// # Guarantees
//
//   - The fence sends a mutating request only if the claim was valid at a reading of the clock made
//     for that request. It gives the request up when the claim ends, or when its Lease expires.
//   - The User-Agent of every request says under which claim it was made.
//   - Afterwards the fence reports what was written last, and whether that is known ([Writes]).
//   - The fence never waits, and is safe for concurrent use.
//
// # Non-guarantees
//
//   - A request that has left the process cannot be recalled: the server may execute it for as long
//     as it keeps it.
//   - A goroutine that is suspended between the check and the system call writes when it resumes.
package fence
