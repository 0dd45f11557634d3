// Package kubelet is a kubelet of processes: it acts as one node of a real API server, and runs
// each bound pod's container as a process in a root directory of its own. It runs the manifests of
// deploy/ unchanged on a machine without a container engine.
//
// Guarantees, for each pod bound to the node, as long as Run runs:
//
//   - The process sees the image's files, the pod's volumes at their mount paths, and nothing else:
//     its root directory (chroot) contains only these. Secret, ConfigMap, emptyDir, hostPath,
//     downward API and projected volumes are supported, including service-account tokens from the
//     TokenRequest API. Modes, runAsUser, runAsGroup and fsGroup hold.
//   - Command, arguments and environment are what a kubelet would make of them: $(NAME) references,
//     fieldRef, secretKeyRef, configMapKeyRef, and KUBERNETES_SERVICE_HOST and _PORT.
//   - Each pod has an address of its own, in 127.0.0.0/8; with hostNetwork it is 127.0.0.1.
//   - Startup, liveness and readiness probes (HTTP, HTTPS, exec) run with their delays, periods and
//     thresholds, in upstream's prober. A container that ended or failed its liveness probe is
//     restarted after a growing pause. The pod's status is true: phase, address, conditions,
//     readiness, restarts.
//   - A deleted pod gets SIGTERM and, after its grace period, SIGKILL. Then the object is deleted,
//     if its UID is still the same.
//   - Requests are those of a kubelet, and a kubelet's rights suffice (Node authorization).
//   - When Run's context ends, the processes end the same way, and Run returns after the last of
//     them. If this process dies, the control plane's reaper ends them.
//
// Not guaranteed:
//
//   - Isolation. Network, process ids and host name are the machine's; there is no /proc, no /dev
//     and no DNS. Of a security context only user and groups are applied, not capabilities and
//     seccomp profiles. A read-only root is read-only by file modes, for users other than root.
//   - Endpoints: the API server refuses loopback addresses in EndpointSlices, so Services of these
//     pods stay empty.
//   - Volumes are written when a container starts, and not updated. Tokens are not renewed and
//     expire after an hour.
//   - What a container changes in its root survives its restart.
//   - Pods with several containers, init containers, envFrom or resource fields are refused, and
//     their status says so.
//   - Static pods are not read from files. Bind a pod to the node instead.
//   - Anything but Linux. Root is not needed if the kernel lets users have user namespaces; see
//     Supported.
package kubelet
