package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// TestOutage runs a bare API server, without gates, in a directory of the caller's. The API server
// goes down and comes up again, and so do processes.
func TestOutage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's here")
	cp := harness.StartPlane(t, controlplane.Options{
		Dir:           dir,
		AuditObjects:  true,
		FeatureGates:  map[string]bool{"AllAlpha": false},
		APIServerArgs: []string{"--service-cluster-ip-range=10.97.0.0/24"},
	})
	admin := client(t, cp.AdminConfig())

	t.Run("sharded list", func(t *testing.T) {
		pods, err := listShard(t, admin)
		if err != nil {
			t.Fatal(err)
		}
		if pods.ShardInfo != nil {
			t.Errorf("shardInfo is %v with the gate off", pods.ShardInfo)
		}
	})
	t.Run("own flag", func(t *testing.T) {
		service, err := admin.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(service.Spec.ClusterIP, "10.97.0.") {
			t.Errorf("service kubernetes has address %s", service.Spec.ClusterIP)
		}
	})
	t.Run("service account admission", func(t *testing.T) {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "pod"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
		}
		_, err := admin.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "service account") {
			t.Errorf("pod without a default service account: %v, want it refused", err)
		}
	})
	t.Run("outage", func(t *testing.T) { requireOutage(t, cp) })
	t.Run("objects in the audit log", func(t *testing.T) {
		for _, event := range auditEvents(t, cp.AuditLog()) {
			if event.Verb == "create" && event.ObjectRef.Name == "before" && event.ResponseObject != nil {
				return
			}
		}
		t.Error("the ConfigMap's create was not logged with its object")
	})
	t.Run("processes", func(t *testing.T) { requireProcesses(t, cp) })

	pids := requirePids(t, dir, "etcd", "kube-apiserver")
	if err := cp.Stop(); err != nil {
		t.Fatal(err)
	}
	requireGone(t, pids)
	if _, err := os.Stat(cp.AuditLog()); err != nil {
		t.Errorf("a directory of the caller's was not kept: %v", err)
	}
}

func requireOutage(t *testing.T, cp *controlplane.ControlPlane) {
	admin := client(t, cp.AdminConfig())
	configMaps := admin.CoreV1().ConfigMaps("default")
	before := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "before"}}
	if _, err := configMaps.Create(t.Context(), before, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, stop := range map[string]func() error{
		"stopped": cp.StopAPIServer,
		"killed":  func() error { return cp.SignalAPIServer(syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			// A server with open watches, such as informers have, must not wait for them to end.
			watch, err := configMaps.Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Stop()
			events := len(auditEvents(t, cp.AuditLog()))
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			harness.Eventually(t, harness.Patience, "server down", func(ctx context.Context) error {
				if _, err := configMaps.Get(ctx, "before", metav1.GetOptions{}); err == nil {
					return errors.New("the API server answers")
				}
				return nil
			})
			if err := cp.StartAPIServer(t.Context()); err != nil {
				t.Fatal(err)
			}
			// The same client works: the address, the certificates and the data are the same.
			if _, err := configMaps.Update(t.Context(), before, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := len(auditEvents(t, cp.AuditLog())); got <= events {
				t.Errorf("%d events in the audit log after the outage, %d before", got, events)
			}
		})
	}
}

func requireProcesses(t *testing.T, cp *controlplane.ControlPlane) {
	stubborn, err := cp.StartProcess("stubborn", "/bin/sh",
		[]string{"-c", "trap '' TERM; echo $WORD; exec sleep 1000"},
		controlplane.WithEnv("WORD=never"), controlplane.WithGrace(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cp.StartProcess("stubborn", "/bin/sh", nil); err == nil {
		t.Error("two processes have the same name")
	}
	harness.Eventually(t, harness.Patience, "output", func(context.Context) error {
		content, err := os.ReadFile(stubborn.LogPath())
		if err == nil && string(content) != "never\n" {
			err = fmt.Errorf("the log holds %q", content)
		}
		return err
	})
	if err := stubborn.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("stop: %v, want an error that says it was killed", err)
	}
	if err := stubborn.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("wait: %v", err)
	}
	if err := stubborn.Stop(t.Context()); err != nil {
		t.Errorf("second stop: %v", err)
	}

	again, err := cp.StartProcess("stubborn", "/bin/sh", []string{"-c", "exit 3"}, controlplane.WithDir(cp.Dir()))
	if err != nil {
		t.Fatal(err)
	}
	<-again.Done()
	if err := again.Wait(); err == nil || err.Error() != "exit status 3" {
		t.Errorf("wait: %v", err)
	}
	if _, err := cp.StartProcess("nothing", filepath.Join(cp.Dir(), "nothing"), nil); err == nil {
		t.Error("a missing binary was started")
	}
}
