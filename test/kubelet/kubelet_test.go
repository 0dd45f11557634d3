package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// fixture is a control plane and one node of processes.
type fixture struct {
	client kubernetes.Interface
	mu     sync.Mutex
	log    strings.Builder
}

// Write implements io.Writer.
func (w *fixture) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func (w *fixture) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

// showLogs prints the containers' logs.
func showLogs(t *testing.T, plane *controlplane.ControlPlane) {
	logs, _ := filepath.Glob(filepath.Join(plane.Dir(), "pod-*.log"))
	for _, name := range logs {
		t.Log(harness.Tail(name))
	}
}

func startFixture(t *testing.T) *fixture {
	t.Helper()
	plane := harness.StartPlane(t, controlplane.Options{})
	w := &fixture{client: harness.Client(t, plane)}
	config, err := plane.ConfigFor("system:node:n", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	image := Image{Root: t.TempDir(), Entrypoint: []string{"/child"}}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := copyFile(binary, filepath.Join(image.Root, "child")); err != nil {
		t.Fatal(err)
	}
	k, err := New(Options{
		Node: "n", Config: config, Dir: t.TempDir(), Plane: plane, Log: w,
		Image: func(string) (Image, error) { return image, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			log := w.logged()
			t.Log(log[max(0, len(log)-4000):])
			showLogs(t, plane)
		}
	})
	w.create(t)
	return w
}

// create creates what controllers would create in a real cluster, and what the pods mount.
func (w *fixture) create(t *testing.T) {
	t.Helper()
	core, opts := w.client.CoreV1(), metav1.CreateOptions{}
	_, err := core.ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, opts)
	_, err2 := core.ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "root"}}, opts)
	_, err3 := core.Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"key": "secret", "other": "x"}}, opts)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
}

func httpGet(path string) corev1.ProbeHandler {
	return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8080)}}
}

func newPod(name, mode string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"l": "v"}},
		Spec: corev1.PodSpec{
			NodeName:                      "n",
			TerminationGracePeriodSeconds: ptr.To[int64](60),
			SecurityContext:               &corev1.PodSecurityContext{RunAsUser: ptr.To[int64](65532), RunAsGroup: ptr.To[int64](65532), FSGroup: ptr.To[int64](65532)},
			Containers: []corev1.Container{{
				Name: "c", Image: "i", Args: []string{"--name=$(NAME)"},
				Env: []corev1.EnvVar{
					{Name: childVariable, Value: mode},
					{Name: "XDG_CACHE_HOME", Value: "/scratch/cache"}, // Importing envtest creates a folder.
					{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
					{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
				},
				StartupProbe:   &corev1.Probe{ProbeHandler: httpGet("/alive"), PeriodSeconds: 1, FailureThreshold: 100},
				LivenessProbe:  &corev1.Probe{ProbeHandler: httpGet("/alive"), PeriodSeconds: 1, TimeoutSeconds: 20},
				ReadinessProbe: &corev1.Probe{ProbeHandler: httpGet("/ready"), PeriodSeconds: 1, TimeoutSeconds: 20},
				VolumeMounts:   []corev1.VolumeMount{{Name: "s", MountPath: "/secret"}, {Name: "e", MountPath: "/scratch"}},
			}},
			Volumes: []corev1.Volume{
				{Name: "s", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
					SecretName: "s", DefaultMode: ptr.To[int32](0o440), Items: []corev1.KeyToPath{{Key: "key", Path: "sub/key"}},
				}}},
				{Name: "e", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
}

func (w *fixture) start(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	if _, err := w.client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until the pod meets the condition, and returns it.
func (w *fixture) eventually(t *testing.T, name, what string, condition func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	harness.Eventually(t, harness.Patience, name+": "+what, func(ctx context.Context) (err error) {
		pod, err = w.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			pod, err = nil, nil
		}
		if err == nil && !condition(pod) {
			err = fmt.Errorf("it is %+v", pod)
		}
		return err
	})
	return pod
}

func ready(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func restarted(n int32) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool { return ready(pod) && pod.Status.ContainerStatuses[0].RestartCount == n }
}

func post(t *testing.T, pod *corev1.Pod, path string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+pod.Status.PodIP+":8080"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := http.DefaultClient.Do(request); err == nil { // A process that dies does not answer.
		response.Body.Close()
	}
}

// TestKubelet runs pods on a real API server. It checks what they see, when they are ready, and how
// they end.
func TestKubelet(t *testing.T) {
	w := startFixture(t)
	w.start(t, newPod("p", "plain"))
	pod := w.eventually(t, "p", "ready", restarted(0))
	t.Run("what a container sees", func(t *testing.T) { requireSight(t, pod) })

	post(t, pod, "/unready")
	w.eventually(t, "p", "not ready any more", func(p *corev1.Pod) bool { return !ready(p) && p.Status.Phase == corev1.PodRunning })
	post(t, pod, "/sick")
	pod = w.eventually(t, "p", "started again because it was not alive", restarted(1))
	if s := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; s == nil || !strings.Contains(s.Message, "liveness probe failed") {
		t.Errorf("the last termination is %+v", s)
	}
	post(t, pod, "/die")
	pod = w.eventually(t, "p", "started again because it had ended", restarted(2))
	if s := pod.Status.ContainerStatuses[0].LastTerminationState.Terminated; s == nil || s.ExitCode != 3 {
		t.Errorf("the last termination is %+v", s)
	}
	w.delete(t, "p", 60)
	if !strings.Contains(w.logged(), "p: ended with 0 stopped") {
		t.Error("the process did not end by itself when the pod was deleted")
	}

	w.start(t, newPod("s", "stubborn"))
	w.eventually(t, "s", "ready", ready)
	w.delete(t, "s", 1)
	if !strings.Contains(w.logged(), "s: ended with 137 killed after its grace period") {
		t.Error("a process that does not end was not killed")
	}
}

func (w *fixture) delete(t *testing.T, name string, grace int64) {
	t.Helper()
	if err := w.client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
	w.eventually(t, name, "deleted", func(p *corev1.Pod) bool { return p == nil })
}

func requireSight(t *testing.T, pod *corev1.Pod) {
	response, err := http.Get("http://" + pod.Status.PodIP + ":8080/sight")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var s sight
	if err := json.NewDecoder(response.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.Args, []string{"/child", "--name=p"}) {
		t.Errorf("arguments %q", s.Args)
	}
	if s.UID != 65532 || s.GID != 65532 || os.Geteuid() == 0 && !slices.Contains(s.Groups, 65532) {
		t.Errorf("user %d, group %d, groups %v", s.UID, s.GID, s.Groups)
	}
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	for path, want := range map[string]string{"/secret/sub/key": "secret", account + "ca.crt": "root", account + "namespace": "default"} {
		if s.Files[path] != want {
			t.Errorf("%s is %q, want %q", path, s.Files[path], want)
		}
	}
	if mode := s.Modes["/secret/sub/key"]; mode != "-r--r-----" {
		t.Errorf("the secret's mode is %s", mode)
	}
	if strings.Count(s.Files[account+"token"], ".") != 2 {
		t.Errorf("the token is %q", s.Files[account+"token"])
	}
	if _, there := s.Files["/secret/other"]; there || len(s.Files) != 4 || len(s.Modes) != 5 {
		t.Errorf("files that the container must not see, or too few: %v", s.Modes)
	}
	if os.Geteuid() == 0 && !slices.Equal(s.Writable, []string{"/scratch"}) {
		t.Errorf("it can write to %v, want only /scratch", s.Writable)
	}
	if s.Env["KUBERNETES_SERVICE_HOST"] != "127.0.0.1" || s.Env["HOSTNAME"] != "p" || s.Env["HOME"] != "" {
		t.Errorf("environment %v", s.Env)
	}
}

// TestRefused: unsupported pods are refused, and their status says why.
func TestRefused(t *testing.T) {
	w := startFixture(t)
	for name, tc := range map[string]struct {
		change func(*corev1.PodSpec)
		want   string
	}{
		"root":    {func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)} }, "runAsNonRoot"},
		"two":     {func(s *corev1.PodSpec) { s.Containers = append(s.Containers, corev1.Container{Name: "d", Image: "i"}) }, "one container"},
		"no-file": {func(s *corev1.PodSpec) { s.Volumes[0].Secret.Items[0].Key = "none" }, "non-existent key none"},
		"hostpath": {func(s *corev1.PodSpec) {
			s.Volumes[1] = corev1.Volume{Name: "e", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}}
		}, "this node has no files"},
		"no-tool": {func(s *corev1.PodSpec) { s.Containers[0].Command = []string{"nothing"} }, "executable file not found"},
	} {
		pod := newPod(name, "plain")
		tc.change(&pod.Spec)
		w.start(t, pod)
		w.eventually(t, name, "refused", func(p *corev1.Pod) bool {
			return p != nil && len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
				strings.Contains(fmt.Sprint(p.Status.ContainerStatuses[0].State.Waiting.Message), tc.want)
		})
		w.delete(t, name, 0)
	}
}
