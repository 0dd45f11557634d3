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
