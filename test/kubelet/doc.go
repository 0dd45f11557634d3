// Package kubelet is a kubelet of processes: it plays one node of a real API server, and runs the
// container of each pod that is bound to the node as a process in a root directory of its own. With
// it the manifests of deploy/ are run as they are, on a machine without a container engine.
//
// Guarantees, for each pod bound to the node, as long as Run runs:
//
//   - The process sees the image's files, the pod's volumes at their mount paths, and nothing else:
//     it is in a root directory (chroot) in which only they are. Secret, ConfigMap, emptyDir,
//     hostPath, downward API and projected volumes are known, service-account tokens among them,
//     which come from the TokenRequest API. Modes, runAsUser, runAsGroup and fsGroup hold.
//   - Command, arguments and environment are what a kubelet would make of them: $(NAME) references,
//     fieldRef, secretKeyRef, configMapKeyRef, and KUBERNETES_SERVICE_HOST and _PORT.
//   - Each pod has an address of its own, in 127.0.0.0/8; with hostNetwork it is 127.0.0.1.
//   - Startup, liveness and readiness probes (HTTP, HTTPS, exec) run with their delays, periods and
//     thresholds, by upstream's prober. A container that ended, or that is not alive, is started
//     again after a pause that grows; the pod's status says what is true: phase, address,
//     conditions, readiness, restarts.
//   - A pod that is deleted gets SIGTERM, after its grace period SIGKILL, and then the object is
//     deleted, if its UID is still the same.
//   - Requests are those of a kubelet, and go well with the rights of one (Node authorization).
//   - When Run's context ends, the processes are ended the same way, and Run returns after the last
//     of them. Should this process die, the control plane's reaper ends them.
//
// Not guaranteed:
//
//   - Isolation. Network, process numbers and host name are the machine's; there is no /proc, no
//     /dev and no DNS. Security contexts are obeyed where they say who the process is; capabilities
//     and seccomp profiles are not applied. A read-only root is read-only by file modes, for users
//     other than root.
//   - Endpoints: the API server refuses loopback addresses in EndpointSlices, so Services of these
//     pods stay empty.
//   - Volumes are written when a container starts, and not kept up to date. Tokens are not renewed:
//     an hour is what they last.
//   - What a container changes in its root survives its restart.
//   - Pods with several containers, with init containers, envFrom or resource fields are refused,
//     and say so in their status.
//   - Static pods are not read from files. Bind a pod to the node instead.
//   - Anything but Linux. Root is not needed where the kernel lets users have user namespaces;
//     Supported tells.
package kubelet
