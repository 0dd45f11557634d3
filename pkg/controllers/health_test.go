package controllers

import (
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/server/healthz"
)

// TestChecksOfALaterInstanceStay has an instance end after another one of the same shard has begun,
// as a preparation does that the work has rejected.
func TestChecksOfALaterInstanceStay(t *testing.T) {
	e := NewEndpoints()
	check := healthz.NamedCheck("job-controller@namespaces/01", nil)
	removeFirst := e.AddChecks("namespaces/01", []healthz.HealthChecker{check})
	removeSecond := e.AddChecks("namespaces/01", []healthz.HealthChecker{check})
	removeFirst()
	if got := e.CheckNames(); !slices.Equal(got, []string{check.Name()}) {
		t.Errorf("checks are %v after the first has ended, want those of the second", got)
	}
	removeSecond()
	if got := e.CheckNames(); len(got) > 0 {
		t.Errorf("checks are %v after both have ended, want none", got)
	}
}
