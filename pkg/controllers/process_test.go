package controllers

import (
	"slices"
	"testing"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	kubectrlmgrconfig "k8s.io/kubernetes/pkg/controller/apis/config"
	"k8s.io/utils/clock"
)

// withFlags returns a process with only a configuration and a clock.
func withFlags(set func(*kubectrlmgrconfig.KubeControllerManagerConfiguration)) *Process {
	var c config.Config
	set(&c.ComponentConfig)
	return &Process{config: c.Complete(), clock: clock.RealClock{}}
}

// TestTokensWhateverControllersSays checks that serviceaccount-token is built even if --controllers
// leaves it out, as upstream does.
func TestTokensWhateverControllersSays(t *testing.T) {
	all := []string{names.JobController, names.ServiceAccountTokenController}
	for name, tc := range map[string]struct {
		controllers []string
		key         string
		left, want  []string
	}{
		"all":             {[]string{"*"}, "sa.key", nil, all},
		"one":             {[]string{names.JobController}, "sa.key", nil, all},
		"left out":        {[]string{"*", "-" + names.ServiceAccountTokenController}, "sa.key", nil, all},
		"without a key":   {[]string{names.JobController}, "", nil, []string{names.JobController}},
		"left to another": {[]string{names.JobController}, "sa.key", []string{names.ServiceAccountTokenController}, []string{names.JobController}},
	} {
		p := withFlags(func(c *kubectrlmgrconfig.KubeControllerManagerConfiguration) {
			c.Generic.Controllers, c.SAController.ServiceAccountKeyFile = tc.controllers, tc.key
		})
		p.Leave(tc.left)
		if got := p.Runs(all); !slices.Equal(got, tc.want) {
			t.Errorf("%s: runs %v, want %v", name, got, tc.want)
		}
	}
}
