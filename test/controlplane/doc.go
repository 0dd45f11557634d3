// Package controlplane starts a real Kubernetes control plane on this machine: etcd, kube-apiserver
// and, when asked for, kube-scheduler and simulated nodes. The demo, the integration tests and the
// end-to-end tests all run on it. It starts no controller manager: that is what its users bring,
// the stock one or the fleet.
//
// Guarantees, once Start has returned:
//
//   - The API server is ready, its RBAC bootstrap included; the namespaces default, kube-system,
//     kube-public and kube-node-lease and the Service kubernetes exist. If nodes were asked for,
//     they are Ready.
//   - It is as strict as a kubeadm cluster where a controller manager can tell: TLS, client
//     certificates, Node and RBAC authorization, the default admission plugins with ServiceAccount
//     among them. So pods can be created only in namespaces whose default service account a
//     controller manager has made.
//   - One certificate authority serves as client CA, as the serving certificate's root and as the
//     signer that a controller manager is given for certificate requests.
//   - Every mutating request is in the audit log, written before it was answered, with user, user
//     agent, object and response code; writes to Leases with the whole object.
//   - All of it listens on 127.0.0.1 only, on free ports.
//   - Stop ends every process that Start or StartProcess began and removes the working directory,
//     unless it is the caller's or to be kept. So does a small shell process (the reaper) should
//     this process die before that, by whatever signal.
//
// Not guaranteed:
//
//   - Durability: etcd does not fsync.
//   - Scheduling without a controller manager: nodes carry the not-ready taint until node-lifecycle
//     removes it.
//   - Anything that a kubelet or container does: no logs, no exec, no network. A simulated pod is
//     Ready at once, pods of a Job succeed after Options.JobDuration, deleted pods go at once.
//   - Children of a started process that leave its process group.
//   - Free ports are found by trying; another process may be quicker. Start then fails and may be
//     called again.
//   - Windows: processes are ended by process group.
//
// The binaries come from bin/, which `make tools` fills. The work of starting etcd and
// kube-apiserver is done by controller-runtime's envtest, which also keeps a cache of ports in use
// in the user's cache directory.
package controlplane
