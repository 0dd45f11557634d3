// Package run runs the commands of the handbook's pages on a real control plane, as a reader would
// type them. A newcomer must get from docs/install.md to a running fleet without guessing.
//
// There is one cluster. It has a stock controller manager as its leader, a control-plane node whose
// pods are processes (test/kubelet), and a few simulated nodes for everything else. The blocks of
// [markdown.Run] are one bash script with -e, -u and -o pipefail, in a copy of the working tree,
// with bin/ on PATH. If a command fails, the error names the page and line of its block.
//
// test/kubeadm runs the blocks that need a node of kubeadm's. In place of some of them the script
// asks the test to do something, and waits until that is done.
package run
