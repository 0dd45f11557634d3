package planner

import (
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// TestKeepNewest checks that the planner takes nothing from the newest version while there are
// several.
func TestKeepNewest(t *testing.T) {
	roster := func(versions map[string]string) membership.Roster {
		var observations []election.Observation
		for name, version := range versions {
			observations = append(observations, election.Observation{
				Record: leaserecord.Record{
					Name: leaserecord.MemberLease("flotilla", name), Holder: name + "_1", Duration: time.Minute, RenewTime: time.Now(), AcquireTime: time.Now(),
					Annotations: map[string]string{leaserecord.StateAnnotation: string(membership.Active), leaseapi.CatalogueAnnotation: skew.Build{Version: version, Controllers: []skew.Controller{{Name: "c"}}}.Known().String()},
				},
				Exists: true, Seen: time.Now(), HolderSeen: time.Now(),
			})
		}
		return membership.RosterFrom("flotilla", observations, time.Minute, time.Now())
	}
	plan := testPlan(t, 4)
	for i := range plan.Rings[0].Shards {
		plan.Rings[0].Shards[i].Home = string("abca"[i])
	}
	plan.Rings[0].Shards[3].Pin = "a"
	for name, test := range map[string]struct {
		versions map[string]string
		want     string
	}{
		"one version":     {map[string]string{"a": "v1.37.0", "b": "v1.37.0"}, ""},
		"two versions":    {map[string]string{"a": "v1.38.0", "b": "v1.37.0", "c": "v1.37.0"}, "a"},
		"two of three":    {map[string]string{"a": "v1.38.0", "b": "v1.37.0", "c": "v1.38.0"}, "ac"},
		"numbers":         {map[string]string{"a": "v1.9.0", "b": "v1.10.0"}, "b"},
		"the newest away": {map[string]string{"b": "v1.37.0", "c": "v1.37.0"}, ""},
	} {
		keep := keepNewest(plan, "namespaces", roster(test.versions))
		got := ""
		for _, s := range plan.Rings[0].Shards {
			if keep[s.ID] {
				got += s.Home
			}
		}
		if got != test.want {
			t.Errorf("%s: kept the shards of %q, want %q", name, got, test.want)
		}
	}
}
