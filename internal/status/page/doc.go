// Package page is the status page that every member of a fleet serves: which members live, who
// holds which shard, what is moving, and what is wrong, as HTML for people and as JSON for
// programs.
//
//	a member (Source) -> Document -> HTML, or JSON
//
// # Guarantees
//
//   - HTML and JSON are made from one Document: the page shows nothing that the JSON does not have.
//   - The page answers a request from what the member has in memory. It sends no request, takes no
//     lock for long, and costs some ten milliseconds in a large fleet; without requests it costs
//     nothing.
//   - Text from Leases is shown as text. The page has no script and loads nothing; its
//     Content-Security-Policy lets a browser apply the page's own style sheet and do nothing else.
//   - The page never changes anything.
//
// # Non-guarantees
//
//   - The page shows one member's view. A member that cannot reach the API server shows what it saw
//     last; the age of the other members' last renewals reveals that.
//   - The page does not decide who may see it: the server in front of it does.
//   - "Since" is by the holder's clock. Ages of renewals are by the member's own.
package page
