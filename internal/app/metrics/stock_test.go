package metrics

import (
	"context"
	"errors"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/featuregate"
	k8smetrics "k8s.io/component-base/metrics"
	metricsfeatures "k8s.io/component-base/metrics/features"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/metrics"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func never(context.Context, fleet.Work) (fleet.Instance, error) { return nil, errors.New("never") }

// idle returns a member that does not run.
func idle(t *testing.T) *fleet.Member {
	t.Helper()
	member, err := fleet.New(fleet.Config{
		Fleet: "flotilla", Member: "a", Plan: testPlan(t, 2), Leases: leasetest.NewStore().Client("a"),
		Timing: election.DefaultTiming(), Build: never, Exit: func(string) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return member
}

// TestAsComponentBaseMakesThem compares the families with what component-base makes of the same
// definition. Dashboards and native histograms must see no difference.
func TestAsComponentBaseMakesThem(t *testing.T) {
	gate := featuregate.NewVersionedFeatureGate(version.MustParse("1.37"))
	if err := metricsfeatures.AddFeatureGates(gate); err != nil {
		t.Fatal(err)
	}
	for _, native := range []bool{true, false} { // The process's default, false, comes last.
		if err := gate.SetFromMap(map[string]bool{string(metricsfeatures.NativeHistograms): native}); err != nil {
			t.Fatal(err)
		}
		metricsfeatures.ApplyFeatureGates(gate)
		stock := k8smetrics.NewHistogramVec(&k8smetrics.HistogramOpts{
			Name: "flotilla_lease_request_duration_seconds", StabilityLevel: k8smetrics.ALPHA,
			Help:    "How long requests for the fleet's own Leases and its leader locks take, whatever comes of them.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"kind", "action"})
		want := k8smetrics.NewKubeRegistry()
		want.MustRegister(stock)
		stock.WithLabelValues("member", "renew").Observe(.3)

		o := metrics.Options{Fleet: "flotilla", Stability: Stability, NativeHistograms: native}
		m, err := metrics.New(o)
		if err != nil {
			t.Fatal(err)
		}
		got := k8smetrics.NewKubeRegistry()
		if err := m.Register(got.Registerer(), metrics.Source{Member: idle(t)}); err != nil {
			t.Fatal(err)
		}
		m.Count(fleet.Event{Event: election.Event{
			Type: election.EventRenewed, Name: "flotilla-member-a", Action: election.Renew, Duration: 300e6,
		}})
		wanted, found := histogram(t, want), histogram(t, got)
		if found != wanted {
			t.Errorf("native %v:\n%s\nwant\n%s", native, found, wanted)
		}
		if strings.Contains(found, "schema:") != native {
			t.Errorf("native %v:\n%s", native, found)
		}
	}
}

var created = regexp.MustCompile(`created_timestamp:\{[^}]*\}`)

// histogram returns the family of the requests' durations, in protobuf's text format.
func histogram(t *testing.T, registry k8smetrics.KubeRegistry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "flotilla_lease_request_duration_seconds" {
			return created.ReplaceAllString(strings.ReplaceAll(f.String(), "  ", " "), "")
		}
	}
	t.Fatal("flotilla_lease_request_duration_seconds is missing")
	return ""
}

// TestLeaderElectionMasterStatus follows one claim.
func TestLeaderElectionMasterStatus(t *testing.T) {
	m, registry := NewMaster(), k8smetrics.NewKubeRegistry()
	m.register(registry.Register, idle(t))
	id := shard.ID{Ring: "namespaces", Name: "01"}
	lease := leaseapi.ShardLease("flotilla", id)
	for _, step := range []struct {
		event election.EventType
		want  string // The Lease's series, "" for none.
	}{
		{election.EventAcquired, "1"}, {election.EventRenewed, "1"}, {election.EventEnded, "0"}, {fleet.EventForgotten, ""},
	} {
		m.Observe(fleet.Event{ID: id, Event: election.Event{Type: step.event, Name: lease}})
		got := ""
		for line := range strings.Lines(text(t, registry)) {
			if value, ok := strings.CutPrefix(line, `leader_election_master_status{name="`+lease+`"} `); ok {
				got = strings.TrimSpace(value)
			}
		}
		if got != step.want {
			t.Errorf("after %s, the Lease's is %q, want %q", step.event, got, step.want)
		}
	}
	if want := `leader_election_master_status{name="kube-controller-manager"} 0` + "\n"; !strings.Contains(text(t, registry), want) {
		t.Errorf("/metrics has no %s", want)
	}
}

// losing is a member that loses its only shard while somebody looks at its shards for the first
// time. observe reports the loss.
type losing struct {
	observe func()
	lost    atomic.Bool
	ended   sync.WaitGroup
}

func (l *losing) Shards() []fleet.ShardStatus {
	owned := []fleet.ShardStatus{{Owned: true}}
	if !l.lost.CompareAndSwap(false, true) {
		return nil
	}
	var observed atomic.Bool
	l.ended.Go(func() { l.observe(); observed.Store(true) })
	for i := 0; i < 100_000 && !observed.Load(); i++ { // it may have to wait until this returns
		runtime.Gosched()
	}
	return owned
}

// TestMasterStatusIsTheLatest has a shard's loss observed while the acquisition of another one is:
// what the member held before must not stay.
func TestMasterStatusIsTheLatest(t *testing.T) {
	m, registry := NewMaster(), k8smetrics.NewKubeRegistry()
	event := func(what election.EventType, lease string) fleet.Event {
		return fleet.Event{ID: shard.ID{Ring: "namespaces", Name: lease}, Event: election.Event{Type: what, Name: lease}}
	}
	member := &losing{observe: func() { m.Observe(event(election.EventEnded, "first")) }}
	m.register(registry.Register, member)
	m.Observe(event(election.EventAcquired, "second"))
	member.ended.Wait()
	if want := `leader_election_master_status{name="kube-controller-manager"} 0` + "\n"; !strings.Contains(text(t, registry), want) {
		t.Errorf("/metrics has no %s", want)
	}
}
