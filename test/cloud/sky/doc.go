// Package sky is a small cloud with an HTTP API of its own, for the tests of the cloud controller
// manager. It behaves as clouds do where a controller can tell:
//
//   - Load balancers are real: TCP listeners on loopback addresses that forward to the backends.
//   - Names are not unique and nothing is idempotent: who creates twice has two.
//   - Requests take time, and what a request has begun goes on when the client hangs up.
//   - There is a limit of requests for each client, and one for all. What is above it is answered
//     with 429 and the time after which to try again.
//
// It keeps a log of all calls, of which [Judge] says whether two clients ever got into each other's
// way.
//
// A client names itself with its bearer token. Everything listens on 127.0.0.0/8.
package sky
