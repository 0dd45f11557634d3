// Package resources asks the API server which resources it has, and reads the answer only when it
// has changed.
//
// Upstream's garbage collector and resource quota controller ask every 30 s. A stock controller
// manager has one of each; a member has one of each for every range. So a [Cache], one for a
// process, keeps the last answer together with the entity tags that it came with. Its clients ask
// with If-None-Match (RFC 9110, section 13.1.2). As a rule the API server answers 304, and the
// cache returns the answer that it keeps.
//
// # Guarantees
//
//   - Every call asks the API server, with the caller's own credentials, and returns what the
//     server has at that moment: nothing is ever older than with upstream's client. If several API
//     servers give different answers, each is kept or fetched by its own tags.
//   - Only a complete answer is kept. If an answer lacks a group, because that group's API server
//     does not answer, it comes with an error, as upstream's does, and the next call asks again.
//   - The result belongs to the caller, who may change it.
//
// # Non-guarantees
//
//   - If an API server sends no entity tags, every call asks it for everything.
//   - Methods that the cache has no answers for are the client's own.
package resources
