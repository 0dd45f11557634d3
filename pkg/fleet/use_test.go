package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// TestMemberSaysWhatItUses checks that a member publishes its use repeatedly, and that a process
// without Use leaves nothing of its predecessor.
func TestMemberSaysWhatItUses(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *testFleet) {
		queued := int64(0)
		a := s.launch("a", func(c *Config) {
			c.Use = func() leaseapi.Use {
				queued++
				return leaseapi.Use{CPU: 250, Queued: queued, Health: &leaseapi.Health{Wait99: queued}}
			}
		})
		said := func() string {
			a := s.store.Get(leaserecord.MemberLease("flotilla", "a")).Annotations
			return a[leaseapi.UseAnnotation] + a[leaseapi.HealthAnnotation]
		}
		pass(time.Minute)
		first := said()
		pass(time.Minute)
		if second := said(); !strings.Contains(first, "250/") || !strings.Contains(second, "0/0/0/") || first == second {
			t.Errorf("it said %q, and a minute later %q", first, second)
		}
		a.stop()
		<-a.ended
		s.launch("a", nil)
		pass(time.Minute)
		if text := said(); text != "" {
			t.Errorf("%q is left from the process before", text)
		}
	})
}

// TestUseMovesNoShard checks that a change of a member's published use wakes nobody who decides
// where shards are.
func TestUseMovesNoShard(t *testing.T) {
	said := func(use, state string) election.Observation {
		o := election.Observation{Exists: true}
		o.Annotations = map[string]string{leaserecord.StateAnnotation: state}
		for _, name := range []string{leaseapi.UseAnnotation, leaseapi.HealthAnnotation, leaseapi.MemoryAnnotation, leaseapi.CensusAnnotation, leaseapi.RecentWritesAnnotation} {
			o.Annotations[name] = use
		}
		return o
	}
	for _, tc := range []struct {
		before, after election.Observation
		want          bool
	}{
		{said("1/2", "active"), said("1/2", "active"), false},
		{said("1/2", "active"), said("3/4", "active"), false},
		{said("1/2", "active"), said("3/4", "leaving"), true},
		{said("1/2", "active"), election.Observation{Exists: true}, true},
		{election.Observation{Exists: true}, said("1/2", "active"), true},
		{election.Observation{}, said("1/2", "active"), true},
	} {
		if got := leaseapi.MayMoveShards(tc.before, tc.after); got != tc.want {
			t.Errorf("%v to %v: %v, want %v", tc.before.Annotations, tc.after.Annotations, got, tc.want)
		}
	}
	before := said("1/2", "active")
	leaseapi.MayMoveShards(before, said("", ""))
	if before.Annotations[leaseapi.UseAnnotation] != "1/2" {
		t.Error("MayMoveShards has changed its argument")
	}
}
