package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	kubectrlmgrconfig "k8s.io/kubernetes/pkg/controller/apis/config"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// TestTerminatedPodThreshold checks that exactly one shard of the default plan counts terminated
// Pods, with the flag's number.
func TestTerminatedPodThreshold(t *testing.T) {
	const ranges, threshold = 16, 100
	plan, err := catalogue.DefaultPlan(ranges)
	if err != nil {
		t.Fatal(err)
	}
	var all kubectrlmgrconfig.KubeControllerManagerConfiguration
	all.PodGCController.TerminatedPodGCThreshold = threshold
	var counted []int32
	for _, s := range plan.Shards() {
		spec := Spec{ID: s.ID, Range: s.Range, Controllers: plan.ControllersOf(s.ID), Share: 4, Shards: ranges}
		if slices.Contains(spec.Controllers, names.PodGarbageCollectorController) {
			counted = append(counted, shareOf(all, spec).PodGCController.TerminatedPodGCThreshold)
		}
	}
	if !slices.Equal(counted, []int32{threshold}) {
		t.Errorf("shards that count terminated Pods keep %v, want %d in one", counted, threshold)
	}
}

// TestWorkersAreDivided checks that a shard has its share of the workers, rounded up, and that
// neither other controllers nor the process's configuration change.
func TestWorkersAreDivided(t *testing.T) {
	for _, c := range []struct {
		flag  int32
		share int
		want  int32
	}{
		{5, 0, 5}, {5, 1, 5}, {5, 2, 3}, {5, 4, 2}, {5, 5, 1}, {5, 6, 1}, {20, 4, 5}, {20, 6, 4}, {1, 4, 1}, {50, 1000, 1},
		{0, 4, 0}, {-1, 4, -1},
	} {
		var all kubectrlmgrconfig.KubeControllerManagerConfiguration
		all.DeploymentController.ConcurrentDeploymentSyncs = c.flag
		all.ReplicaSetController.ConcurrentRSSyncs = c.flag
		got := shareOf(all, Spec{Controllers: []string{names.DeploymentController}, Share: c.share})
		if n := got.DeploymentController.ConcurrentDeploymentSyncs; n != c.want {
			t.Errorf("one of %d shards has %d workers of %d, want %d", c.share, n, c.flag, c.want)
		}
		if n := got.ReplicaSetController.ConcurrentRSSyncs; n != c.flag {
			t.Errorf("a controller that is not run has %d workers of %d", n, c.flag)
		}
		if n := all.DeploymentController.ConcurrentDeploymentSyncs; n != c.flag {
			t.Errorf("the configuration of the process has %d workers instead of %d", n, c.flag)
		}
	}
}

// TestConstructorThatEndsTheProcess ends the process while a controller is built, as upstream's
// namespace controller does if discovery fails.
func TestConstructorThatEndsTheProcess(t *testing.T) {
	build := func() (err error) {
		defer recovered(&err)
		klog.FlushAndExit(time.Second, 1)
		return nil
	}
	if err := build(); err == nil || !strings.Contains(err.Error(), "status 1") {
		t.Errorf("building returned %v, want an error that names the status", err)
	}
}
