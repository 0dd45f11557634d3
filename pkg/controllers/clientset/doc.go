// Package clientset is client-go's clientset without the API groups that nobody asks for.
//
// A member builds some thirty clientsets for each of its ranges, one for each controller. client-go
// makes the clients of all groups at once, 34 KB for more than fifty, and a controller uses two to
// four of them.
//
// # Guarantees
//
//   - A [Clientset] sends the requests that client-go's would send with the same configuration, with
//     the same rate limits.
//   - [New] returns the errors that client-go's constructor returns. No method fails later.
//   - A group has one client, however often it is asked for. All methods may be called
//     concurrently.
//   - With a version of client-go that has further groups, the package does not compile until
//     `go generate` has been run here. One that has fewer goes unnoticed.
//
// # Non-guarantees
//
//   - [Clientset] is not a *kubernetes.Clientset; few callers need more than kubernetes.Interface.
package clientset
