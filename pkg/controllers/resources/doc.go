// Package resources asks the API server which resources it has, and reads the answer only when it
// has changed.
//
// Upstream's garbage collector and resource quota controller ask every 30 s. A stock controller
// manager has one of each, a member has one of each for every range. So a [Cache], one a process,
// keeps the last answer together with the entity tags that it came with, and its clients ask with
// If-None-Match (RFC 9110, section 13.1.2): as a rule the API server says 304, and the answer that
// is kept is handed out.
//
// # Guarantees
//
//   - Every call asks the API server, with the caller's own credentials, and returns what the
//     server has at that moment: nothing is ever older than with upstream's client. Where several
//     API servers give different answers, each is kept or fetched by its own tags.
//   - Only a complete answer is kept. One that lacks a group, because its API server does not
//     answer, has an error with it as upstream's has, and is asked for again.
//   - What is returned belongs to the caller, who may change it.
//
// # Non-guarantees
//
//   - An API server that sends no entity tags is asked for everything each time.
//   - Methods that the cache has no answers for are the client's own.
package resources
