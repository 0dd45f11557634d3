// Package leaserecord reads and makes the Lease objects that members and claims are kept on: the
// spec, the annotations of a handoff, the marks for a fence in the API server, and how a Lease is
// retired. It decides nothing and sends nothing.
//
// # Guarantees
//
//   - [From] accepts anything that may be stored, and replaces what makes no sense by the nearest
//     valid value.
//   - No function changes the Lease it is given, and all returned Leases keep labels, annotations
//     and fields that this project does not know.
//   - What is returned passes the API server's validation, even if the given Lease was stored
//     before that validation existed.
//   - leaseTransitions, the term, is never reset.
//
// # Not guaranteed
//
//   - That what a Lease says is true: anybody with the right to write it may have written it.
package leaserecord
