// Package controlplane starts a real Kubernetes control plane on this machine: etcd, kube-apiserver
// and, on request, kube-scheduler and simulated nodes. The demo, the integration tests and the
// end-to-end tests all run on it. It starts no controller manager: its users bring the stock one or
// the fleet.
//
// Guarantees, once Start has returned:
//
//   - The API server is ready, including its RBAC bootstrap. The namespaces default, kube-system,
//     kube-public and kube-node-lease and the Service kubernetes exist. Requested nodes are Ready.
//   - It is as strict as a kubeadm cluster in everything that a controller manager can notice: TLS,
//     client certificates, Node and RBAC authorization, and the default admission plugins with
//     ServiceAccount. Pods can be created only in namespaces whose default service account a
//     controller manager has created.
//   - One certificate authority serves as client CA, as the root of the serving certificate and as
//     the controller manager's signer for certificate requests.
//   - The audit log has every mutating request, written before the answer, with user, user agent,
//     object and response code. Writes to Leases have the whole object.
//   - Everything listens on free ports of 127.0.0.1 only.
//   - Stop ends every process that Start or StartProcess began. It removes the working directory
//     unless the caller provided it or wants it kept. A small shell process (the reaper) does the
//     same if this process dies first, by whatever signal.
//
// Not guaranteed:
//
//   - Durability: etcd does not fsync.
//   - Scheduling without a controller manager: nodes carry the not-ready taint until node-lifecycle
//     removes it.
//   - Anything that a kubelet or container does: no logs, no exec, no network. A simulated pod is
//     Ready at once, a Job's pods succeed after Options.JobDuration, deleted pods disappear at
//     once.
//   - Ending children of a started process that leave its process group.
//   - Free ports: another process may take one between the check and the use. Start then fails and
//     may be called again.
//   - Windows: processes are ended by process group.
//
// The binaries come from bin/, which `make tools` fills. controller-runtime's envtest starts etcd
// and kube-apiserver. It keeps a cache of used ports in the user's cache directory.
package controlplane
