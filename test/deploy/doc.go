// Package deploy runs what is in deploy/ for real: the manifests as they are, on a real API server,
// by kubelets that run each pod as a process in the image's file system (test/kubelet).
//
//   - TestSelfHosted: the newcomer's way, with the commands of deploy/README.md: a stock controller
//     manager creates the pods, is taken away, and the fleet takes over, rolls itself out, scales
//     itself, and is brought back from nothing. The audit log must have no refused request.
//   - TestHosted: a fleet in one cluster for another.
//   - TestStaticPod: kubeadm's manifest with another image, with keys that only root may read.
//   - TestAdmitted: the API server takes every manifest, and the pods pass the Pod Security level
//     restricted.
//   - TestChartIsTheOverlays, TestStaticPodIsKubeadms, TestBenchmark, TestDockerfile: what is the
//     same as what.
//
// The tests need bin/, which `make build tools` and `hack/build-tools.sh helm` fill, and Linux; see
// kubelet.Supported.
package deploy
