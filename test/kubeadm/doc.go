// Command kubeadm brings up real kubeadm clusters on this machine, each with three control-plane
// nodes and a worker, which run containerd, runc and kubelets. It runs the commands of
// docs/install.md there and checks what the handbook promises of a fleet.
//
//	go run ./test/kubeadm [-stages static,self-hosted] [-clusters 1] [-stay]
//
// from the repository; make kubeadm builds what it needs.
//
// A node is a process tree with its own namespaces (mount, pid, net, uts, ipc, cgroup) and its own
// root folder, in which /usr is this machine's, read-only. Its first process is init.sh. Images are
// made from bin/, so nothing is pulled.
//
// All nodes of a cluster run below one process in its own mount, network and pid namespaces
// (isolate.go). It has the bridge between the nodes and a load balancer for the API servers. When
// that process ends, for whatever reason, the kernel ends everything below it, and removes its
// mounts and network. The process that started it then removes the working folder and the cgroups.
// The machine's own network is not touched. One limit of the machine may be raised, and then stays
// so: fs.inotify.max_user_instances.
//
// Two clusters share the stages and run at the same time (-clusters), because nodes mostly wait.
// Neither knows of the other. Each line of output then begins with its cluster's number.
//
// The stages, in the order in which a cluster runs its own, after up:
//
//   - up: kubeadm init and join, with the stock kube-controller-manager.
//   - shadow: shadows beside stock, in pods and as a process (docs/shadow.md).
//   - static: static pods, node by node, kubeadm upgrade, and the way back
//     (docs/install.md#static-pods).
//   - self-hosted: the StatefulSet (docs/install.md#self-hosted); another build and the next minor
//     version by set image; a canary that is aborted and one that is promoted; a rolling restart
//     under load; a node that loses its power; and the way back (docs/migration.md#the-way-back).
//     The next minor version is this build with other controllers.
//   - helm: the chart, upgraded and rolled back, and the way back by flotilla stop.
//   - hosted: a fleet in pods of this cluster that controls a second one, which is an etcd and a
//     kube-apiserver on the first node (hosted.sh), without nodes (docs/install.md#hosted). It is
//     installed by Helm, given new credentials, upgraded and rolled back, and then installed by
//     kustomize.
//
// After each stage with a fleet, package audit checks the audit logs of all API servers.
//
// Exit status: 0 if every check passed, 1 if one failed, 2 for wrong usage, 130 if interrupted.
// After a failure the nodes' logs are in _output/kubeadm, by cluster.
package main
