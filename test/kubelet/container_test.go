package kubelet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestIdentity(t *testing.T) {
	type pod = *corev1.PodSecurityContext
	type own = *corev1.SecurityContext
	for name, tc := range map[string]struct {
		pod   pod
		own   own
		image int64
		want  identity
		err   string
	}{
		"the image's":             {nil, nil, 7, identity{uid: 7}, ""},
		"the pod's":               {pod(&corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1), RunAsGroup: ptr.To[int64](2), FSGroup: ptr.To[int64](3)}), nil, 7, identity{1, 2, []int64{3}}, ""},
		"the container's":         {pod(&corev1.PodSecurityContext{RunAsUser: ptr.To[int64](1)}), &corev1.SecurityContext{RunAsUser: ptr.To[int64](4)}, 7, identity{uid: 4}, ""},
		"root that must not be":   {pod(&corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)}), nil, 0, identity{}, "runAsNonRoot"},
		"root, and not forbidden": {nil, nil, 0, identity{}, ""},
	} {
		got, err := identityOf(&corev1.Pod{Spec: corev1.PodSpec{SecurityContext: tc.pod}}, &corev1.Container{SecurityContext: tc.own}, Image{User: tc.image})
		if (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: %v, want %q", name, err, tc.err)
		}
		if err == nil && !cmp.Equal(got, tc.want, cmp.AllowUnexported(identity{})) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// TestCommand resolves a container's program, its arguments and its environment.
func TestCommand(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/tool"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	image := Image{Entrypoint: []string{"/bin/entry"}, Env: []string{"PATH=/sbin:/bin", "A=image"}}
	env := []corev1.EnvVar{
		{Name: "A", Value: "own"}, {Name: "B", Value: "$(A)-$(NONE)-$$(A)"},
		{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
		{Name: "LABEL", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['l']"}}},
		{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
		{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
	}
	for _, tc := range []struct {
		command, args []string
		path          string
		argv          []string
		err           string
	}{
		{nil, []string{"$(B)", "$(IP)"}, "/bin/entry", []string{"/bin/entry", "own-$(NONE)-$(A)", "127.9.9.9"}, ""},
		{[]string{"tool", "$(NAME)"}, []string{"$(LABEL)", "$(NODE)"}, "/bin/tool", []string{"tool", "p", "of-p", "n"}, ""},
		{[]string{"nothing"}, nil, "", nil, "not found"},
	} {
		w := &worker{
			k:      &Kubelet{host: "h", port: "1", opts: Options{Node: "n"}},
			pod:    &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"l": "of-p"}}},
			status: podStatus{address: "127.9.9.9"},
		}
		c := &container{root: root, spec: &corev1.Container{Command: tc.command, Args: tc.args, Env: env}}
		values, err := w.environment(t.Context(), c.spec, image)
		if err != nil {
			t.Fatal(err)
		}
		c.env = []string{"PATH=" + values["PATH"]}
		if err := c.resolve(image, values); (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%q: %v, want %q", tc.command, err, tc.err)
		}
		if tc.err == "" && (c.path != tc.path || !slices.Equal(c.argv, tc.argv)) {
			t.Errorf("%q %q: %s %q, want %s %q", tc.command, tc.args, c.path, c.argv, tc.path, tc.argv)
		}
		if values["KUBERNETES_SERVICE_HOST"] != "h" || values["KUBERNETES_SERVICE_PORT"] != "1" {
			t.Errorf("the API server is not in %v", values)
		}
	}
}

func TestPhase(t *testing.T) {
	s := podStatus{}
	step := func(want corev1.PodPhase, restarts int32) {
		t.Helper()
		if s.phase() != want || s.restarts != restarts {
			t.Errorf("phase %s and %d restarts, want %s and %d", s.phase(), s.restarts, want, restarts)
		}
	}
	step(corev1.PodPending, 0)
	s.wait("X", "x")
	step(corev1.PodPending, 0)
	s.run()
	step(corev1.PodRunning, 0)
	s.end(1, "")
	step(corev1.PodRunning, 0)
	s.run()
	step(corev1.PodRunning, 1)
	s.end(0, "")
	s.ended = true
	step(corev1.PodSucceeded, 1)
	s.end(137, "killed")
	step(corev1.PodFailed, 1)
}
