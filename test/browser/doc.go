// Package browser tests a member's status page in a real browser: a fleet of three on a real
// control plane, with a handoff under way that a suspended holder delays for as long as the test
// wants. It compares what the page shows with the Leases and with the page's own JSON.
//
// It needs bin/, which `make build tools` fills, and Chromium; without Chromium the browser's part
// is skipped. With -shots it writes the pictures of docs/img.
package browser
