// Package deploy runs what is in deploy/: the unchanged manifests, on a real API server, with
// kubelets that run each pod as a process in the image's file system (test/kubelet).
//
//   - TestSelfHosted: a newcomer's steps, with the commands of deploy/README.md. A stock controller
//     manager creates the pods and is removed. The fleet takes over, rolls itself out, scales
//     itself, and is brought back from zero members. The audit log must have no refused request.
//   - TestHosted: a fleet in one cluster that controls another.
//   - TestStaticPod: kubeadm's manifest with another image, with keys that only root may read.
//   - TestAdmitted: the API server accepts every manifest, and the pods pass the Pod Security level
//     restricted.
//   - TestChartIsTheOverlays, TestStaticPodIsKubeadms, TestBenchmark, TestDockerfile: files that
//     must agree with each other.
//
// The tests need bin/, which `make build tools` and `hack/build-tools.sh helm` fill, and Linux; see
// kubelet.Supported.
package deploy
