// Package page is the status page that every member of a fleet serves: who lives, who holds which shard, what is moving, and
// what is wrong, as HTML for people and as JSON for programs.
//
//	a member (Source) -> Document -> HTML, or JSON
//
// # Guarantees
//
//   - HTML and JSON are made of one Document: the page shows nothing that the JSON does not have.
//   - A request is answered from what the member has in memory. It sends no request, takes no lock for long, and costs some
//     ten milliseconds in a large fleet; without requests the page costs nothing.
//   - Whatever Leases say is shown as text. The page has no script and loads nothing; its Content-Security-Policy lets a browser
//     apply the page's own style sheet and do nothing else.
//   - The page never changes anything.
//
// # Non-guarantees
//
//   - It is one member's view. A member that cannot reach the API server shows what it saw last; the age of the other members'
//     last renewals says so.
//   - Who may see it is for the server to decide that it is put behind.
//   - "Since" is by the holder's clock. Ages of renewals are by the member's own.
package page
