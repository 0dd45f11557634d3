// Package examples runs the programs of examples/ as their readers would: built outside of this
// repository, three members as processes on a real API server with the rights of the example's own
// manifests, one of them killed under work, and the audit log judged at the end.
//
// # Non-guarantees
//
//   - The manifests' pods are not run: there is no kubelet here.
package examples
