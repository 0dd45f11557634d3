// Package sky is a small cloud with an HTTP API of its own, for the tests of the cloud controller
// manager. It behaves as clouds do where a controller can tell:
//
//   - Load balancers are real: TCP listeners on loopback addresses that forward to the backends.
//   - Names are not unique and nothing is idempotent: a client that creates twice has two.
//   - Requests take time, and go on when the client hangs up.
//   - There is a request limit for each client, and one for all. The answer to a request above the
//     limit is 429, with the time to wait before the next try.
//
// It keeps a log of all calls. [Judge] finds in it whether two clients ever got in each other's
// way.
//
// A client names itself with its bearer token. Everything listens on 127.0.0.0/8.
package sky
