// Package browser looks at a member's status page in a real browser: a fleet of three on a real
// control plane, with a handoff under way that a suspended holder holds up for as long as the test
// wants. What the page shows is held against the Leases and against the page's own JSON.
//
// It needs bin/, which `make build tools` fills, and Chromium: where there is none, the browser's
// part is skipped. With -shots it writes the pictures of docs/img.
package browser
