// Package examples runs the programs of examples/ as their readers would: built outside of this
// repository, as three member processes on a real API server with the rights of the example's own
// manifests. It kills one under load, and judges the audit log at the end.
//
// # Non-guarantees
//
//   - The manifests' pods do not run: there is no kubelet here.
package examples
