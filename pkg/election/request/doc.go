// Package request sends requests for Leases to the API server without blocking a loop. A
// [Requester] belongs to one loop and has one request under way at a time. The loop says what to
// send, and receives the outcome.
//
// # Guarantees
//
//   - A loop never waits for the API server, and no other goroutine changes its state: an answer is
//     a function that the loop calls.
//   - The observer learns what a request has shown before the loop receives the answer.
//   - An answer's Start is read before its request leaves the process. So a right that counts from
//     it begins no later than the write.
//   - A conflict, where the Lease has changed, is distinct from a failure. After a conflict the
//     next request follows at once, based on what was just read; after a failure it follows after a
//     pause.
//
// # Non-guarantees
//
//   - The server may have executed a request that failed, or may execute it later.
//   - The answer is dropped once Send's context has ended.
package request
