package data

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// TestClusterAtRestHasItsStatus checks that a ReplicaSet with another status counts as one that
// controllers write to.
func TestClusterAtRestHasItsStatus(t *testing.T) {
	made := func() appsv1.ReplicaSet {
		set := *replicaSet(0)
		setStatus(&set)
		return set
	}
	if err := checkStatus([]appsv1.ReplicaSet{made(), made()}); err != nil {
		t.Error(err)
	}
	written := made()
	written.Status.TerminatingReplicas = nil
	if err := checkStatus([]appsv1.ReplicaSet{made(), written}); err == nil || !strings.Contains(err.Error(), written.Name) {
		t.Errorf("got error %v, want one that names the ReplicaSet", err)
	}
}
