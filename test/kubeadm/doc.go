// Command kubeadm brings up a real kubeadm cluster on this machine, three control-plane nodes and a
// worker with containerd, runc and kubelets, and takes a fleet through what the handbook promises
// of one: the commands are those of docs/install.md.
//
//	go run ./test/kubeadm [-stages static,self-hosted] [-stay]     from the repository; make kubeadm builds what it needs
//
// A node is a process tree with namespaces of its own (mount, pid, net, uts, ipc, cgroup) and a
// root folder of its own, in which /usr is this machine's, read-only. Its first process is init.sh.
// Images are made from bin/, so nothing is pulled.
//
// All of it runs below one process in a mount, network and pid namespace of its own (isolate.go),
// which has the bridge between the nodes, and a load balancer for the API servers. When that
// process ends, by whatever cause, the kernel ends everything below it and takes mounts and network
// away. The process that started it then removes the working folder and the cgroups. Nothing of the
// machine's own network is touched.
//
// The stages, in their order:
//
//   - up: kubeadm init and join, with the stock kube-controller-manager.
//   - shadow: shadows beside stock, in pods and as a process (docs/shadow.md).
//   - static: static pods, node by node, kubeadm upgrade, and the way back
//     (docs/install.md#static-pods).
//   - self-hosted: the StatefulSet (docs/install.md#self-hosted), another build and the next minor
//     version by set image, a canary that is aborted and one that is promoted, and a rolling
//     restart under load, a node that loses its power, and the way back
//     (docs/migration.md#the-way-back). The next minor version is this build with other
//     controllers.
//   - helm: the chart, upgraded and rolled back, and the way back by flotilla stop.
//   - hosted: a fleet in pods of the cluster for a second one, an etcd and a kube-apiserver on the
//     first node (hosted.sh), without nodes (docs/install.md#hosted): by Helm, with new
//     credentials, upgraded and rolled back, and by kustomize.
//
// Each stage that had a fleet is judged by the audit logs of all API servers, by package audit.
//
// Exit status: 0 if everything held, 1 if something did not, 2 for wrong usage, 130 if it was
// interrupted. What the nodes logged is in _output/kubeadm after a failure.
package main
