package election

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

// fleetOf returns an observer that has observed the Leases of a fleet.
func fleetOf(tb testing.TB, members, shards int, clock Clock) *Observer {
	tb.Helper()
	random := rand.New(rand.NewPCG(uint64(members), uint64(shards)))
	o, err := NewObserver(ObserverConfig{
		Fleet: "f", Extra: []string{"f-lock"}, Client: leasetest.NewStore().Client("o"), Clock: clock,
	})
	if err != nil {
		tb.Fatal(err)
	}
	holder := func() string {
		if random.IntN(10) == 0 {
			return ""
		}
		return fmt.Sprintf("m-%d_%d", random.IntN(members), random.IntN(2))
	}
	see := func(name, holder string) {
		l := lease(holder, 1)
		l.Name = name
		o.Observe(l)
	}
	for i := range members {
		see(leaserecord.MemberLease("f", fmt.Sprintf("m-%d", i)), fmt.Sprintf("m-%d_1", i))
	}
	for i := range shards {
		see(shardLease(i), holder())
	}
	see("f-lock", "m-0_0")
	see(shardLease(shards), "not-an-incarnation")
	o.Missing(shardLease(0), "1")
	return o
}

// TestLivingMatchesList compares living, which a pacemaker uses, with List.
func TestLivingMatchesList(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		o := fleetOf(t, 5, 40, NewClock())
		for range 20 {
			h.Sleep(time.Second)
			changed := lease(fmt.Sprintf("m-%d_1", rand.IntN(5)), int32(2+rand.IntN(5)))
			changed.Name, changed.ResourceVersion = shardLease(rand.IntN(40)), fmt.Sprint(100+rand.IntN(100))
			o.Observe(changed)
			var wantMembers []string
			wantNamed := map[string]time.Time{}
			for _, obs := range o.List() {
				switch {
				case leaserecord.IsMemberLease("f", obs.Name):
					wantMembers = append(wantMembers, obs.Name)
				case obs.Heartbeat != nil:
					wantNamed[obs.Holder] = later(wantNamed[obs.Holder], obs.Seen)
				}
			}
			members, named := o.Living()
			var names []string
			for _, obs := range members {
				names = append(names, obs.Name)
			}
			slices.Sort(names)
			if !slices.Equal(names, wantMembers) || !maps.Equal(named, wantNamed) {
				t.Fatalf("living() = %v, %v\nList() says %v, %v", names, named, wantMembers, wantNamed)
			}
		}
	})
}

// TestLivingLeavesOtherFleetsAlone has Leases of fleet f-cloud, and Leases of fleet f with labels
// that somebody has changed.
func TestLivingLeavesOtherFleetsAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *harness) {
		o := fleetOf(t, 0, 0, NewClock())
		see := func(name, fleet, holder string) {
			l := lease(holder, 1)
			l.Name, l.Labels = name, map[string]string{leaserecord.FleetLabel: fleet}
			o.Observe(l)
		}
		see("f-cloud-member-x", "f-cloud", "x_1")
		see("f-cloud-services-00", "f-cloud", "y_1")
		see("f-cloud-00", "f", "of-ring-cloud_1")
		see("f-ns-00", "other", "forged_1")
		see("f-ns-01", "", "emptied_1")
		_, named := o.Living()
		want := []string{"emptied_1", "forged_1", "of-ring-cloud_1"}
		if got := slices.Sorted(maps.Keys(named)); !slices.Equal(got, want) {
			t.Errorf("named are %v, want %v", got, want)
		}
		// What this process claims belongs to its fleet, even if the label and the name fit another.
		see("f-ns-02", "f-ns", "hidden_1")
		_, stop := o.subscribeLease("f-ns-02")
		defer stop()
		_, named = o.Living()
		if got, want := slices.Sorted(maps.Keys(named)), append(want[:2:2], "hidden_1", want[2]); !slices.Equal(got, want) {
			t.Errorf("named are %v, want %v", got, want)
		}
	})
}

// BenchmarkLiving measures what a pacemaker reads at each step.
func BenchmarkLiving(b *testing.B) {
	for _, size := range []struct{ members, shards int }{{3, 21}, {100, 1000}} {
		b.Run(fmt.Sprintf("%d members, %d shards", size.members, size.shards), func(b *testing.B) {
			o := fleetOf(b, size.members, size.shards, NewClock())
			for b.Loop() {
				o.Living()
			}
		})
	}
}

func shardLease(i int) string { return fmt.Sprintf("f-ns-%02d", i) }
