// Package present finds out whether a cache has seen everything that the API server had when it was
// asked.
//
// A cache that has synced may be old: its watch may have stalled. [Comparison.UpToDate] looks at
// what there is, and returns once the cache has reached a high enough version, or holds exactly
// what was listed.
//
// # Guarantees
//
//   - UpToDate returns nil only if the cache has seen everything that was written before the call.
//   - It never waits longer than its context and its [Patience] allow.
//   - Nothing is written, and no more than a page of metadata is held at a time, besides the UIDs
//     and versions of what was listed.
//
// # What it relies on
//
//   - A list without a resource version is current, and so is its first page: it has everything
//     written before the request, and its version is at least that of each such write.
//   - A watch from a version receives all changes after it, in order. A bookmark says that
//     everything up to its version has been sent.
//   - A cache at a version has received all changes up to it.
//   - A resource that is not built in, and that an API server says it does not have, has no
//     objects.
//
// So a cache that has reached the version of the list has seen everything. The cache of a quiet
// resource does not reach it: versions count the writes to all resources, and the cache's own
// bookmarks come a minute apart. Then all of the resource is listed, if it is small. Otherwise a
// short watch from the cache's version finds the last change before the list's version: it ends
// with a bookmark, which the server sends two seconds before the timeout. The bookmark must have
// reached the list's version, since another server, or a slow one, may have answered. If the watch
// does not answer, everything is listed after all.
//
// # What it costs
//
// One page of the metadata of 100 objects, or of one if the cache holds many. If that is not all
// and the cache does not pass, another page of a few hundred, or a watch of one to two seconds for
// the metadata of what has changed. Metadata includes the managed fields, which are most of a Pod:
// a list of all would be two thirds as large as the Pods.
package present
