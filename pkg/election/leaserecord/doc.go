// Package leaserecord reads and makes the Lease objects that members and claims are kept on: the
// spec, the annotations of a handoff, the marks for a fence in the API server, and how a Lease is
// retired. It has no client and no clock.
//
// # Guarantees
//
//   - [From] accepts anything that may be stored, and replaces what makes no sense by the nearest
//     valid value.
//   - No function changes the Lease it is given, and all returned Leases keep labels, annotations
//     and fields that this project does not know.
//   - What is returned passes the API server's validation, even if the given Lease was stored
//     before that validation existed.
//   - Only [Stamp.Held] writes a term, the caller's. Everything else keeps leaseTransitions, or
//     makes 0 of a negative one.
//
// # Not guaranteed
//
//   - That what a Lease says is true: anybody with the right to write it may have written it.
package leaserecord
