// Package request sends requests for Leases to the API server without making a loop wait. A
// [Requester] belongs to one loop and has one request under way at a time; the loop says what to
// send, and is told what came of it.
//
// # Guarantees
//
//   - A loop never waits for the API server, and its state is changed by no other goroutine: an
//     answer is a function that the loop calls.
//   - What a request has shown is told to the observer before its answer is there.
//   - An answer's Start is read before its request leaves the process. A right that counts from it
//     counts from no later than the write.
//   - A conflict, where the Lease has changed, is distinguished from a request that failed. The
//     next request follows a conflict at once, with what was just read, and a failure after a
//     pause.
//
// # Non-guarantees
//
//   - A request that failed may have been carried out, or may be later.
//   - The answer is dropped once Send's context has ended.
package request
