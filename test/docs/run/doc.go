// Package run runs the commands of the handbook's pages on a real control plane, as a reader would type them: a newcomer must get
// from docs/install.md to a running fleet without guessing.
//
// There is one cluster, with a stock controller manager as its leader, a control-plane node whose pods are processes
// (test/kubelet), and a few simulated nodes for everything else. The blocks of [page.Run] are one bash script with -e, -u and
// -o pipefail, in a copy of the working tree, with bin/ on PATH. If a command fails, page and line of its block are in the
// error.
//
// Where a page tells its reader to do something to a node, its block is not run, and names a stand-in: the script asks the test
// for it, and waits until that is done.
package run
