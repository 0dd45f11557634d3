// Package leaseapi defines what the Leases of a fleet say: their names, labels and annotations, and
// how to read each. Programs that look at a fleet from outside, such as the status page, the
// commands and the tests, need this package but no member.
//
// There are three kinds of Leases. A shard's Lease names its holder and has what the holder says
// about the shard. A member's Lease is its heartbeat, and says what the member is and has. The
// plan's Lease has the plan. Package leaserecord defines what claims, heartbeats and the API
// server's fence keep on Leases. Package shard defines the documents on them, such as a plan or a
// census.
//
// # Guarantees
//
//   - Everything here is pure: no client, no clock, no log. Functions are safe for concurrent use.
//   - Anybody can write a Lease, so functions trust nothing on it. A value that is missing or makes
//     no sense counts as not set, and never makes the whole Lease an error.
//   - This package decides for all readers what counts as a member, as a shard's Lease, or as what
//     a Lease covers, so that operators see what members act on.
//
// # Non-guarantees
//
//   - It does not judge whether a holder is alive: [election.Observation.IsHeld] does.
//   - A text that a newer build has written may say more than this build reads.
package leaseapi
