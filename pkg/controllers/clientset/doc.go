// Package clientset is client-go's clientset without the API groups that nobody asks for.
//
// A member builds some thirty clientsets for each of its ranges, one for each controller. client-go
// makes the clients of all 57 groups at once, 34 KB in all, and a controller uses two to four of
// them.
//
// # Guarantees
//
//   - A [Clientset] sends the requests that client-go's would send with the same configuration. All
//     groups share one rate limit and one HTTP client.
//   - [New] returns the errors that client-go's constructor returns. No method fails later.
//   - A group has one client, however often it is asked for. All methods may be called
//     concurrently.
//   - A version of client-go with another set of groups does not compile, or fails a test, until
//     `go generate` has been run here.
//
// # Non-guarantees
//
//   - [Clientset] is not a *kubernetes.Clientset; few callers need more than kubernetes.Interface.
package clientset
