package app

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	metricsfeatures "k8s.io/component-base/metrics/features"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/internal/app/heap"
	appmetrics "github.com/flotilla-kube/flotilla/internal/app/metrics"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// optionsOf returns the fleet options of a process with the flags.
func optionsOf(t *testing.T, change func(*Options), p parts) flotilla.Options {
	t.Helper()
	o, err := NewOptions()
	if err != nil {
		t.Fatal(err)
	}
	o.Fleet.Member = "m"
	change(o)
	c := &config.Config{EventBroadcaster: broadcaster, ControllerShutdownTimeout: shutdownTimeout}
	c.ComponentConfig.Generic.LeaderElection.ResourceNamespace = "kube-system"
	return fleetOptions(c.Complete(), o, []string{"kube-controller-manager"}, p)
}

const shutdownTimeout = 5 * time.Second

var broadcaster = record.NewBroadcaster()

// TestFlagsReachTheFleet finds an option of package flotilla that is forgotten or mixed up with
// another: no two of the same type have the same value.
func TestFlagsReachTheFleet(t *testing.T) {
	clock, observed, enforced := election.NewClock(), 0, true
	got := optionsOf(t, func(o *Options) {
		o.Fleet.Name, o.Fleet.Node, o.Fleet.Zone, o.Fleet.Standby = "fleet", "node", "zone", true
		o.Fleet.Rings = []string{"namespaces"}
		o.Fleet.LeaderLockDelay, o.Fleet.ReplanInterval = 1*time.Second, 2*time.Second
		o.Fleet.RebalanceDelay = 3 * time.Second
		o.Fleet.HandoffTimeout, o.Fleet.FenceDelay, o.Fleet.Handoffs = 6*time.Second, 4*time.Second, 7
		le := &o.Generic.LeaderElection
		le.LeaseDuration.Duration = 30 * time.Second
		le.RenewDeadline.Duration, le.RetryPeriod.Duration = 20*time.Second, 10*time.Second
		o.Metrics.DisabledMetrics = []string{"flotilla_shard_owned"}
		setNativeHistograms(t, true)
	}, parts{
		clock: clock, memory: func() (live, beside int64) { return 1, 2 },
		enforced: func() bool { return enforced },
		observe:  func(fleet.Event) { observed++ },
	})
	want := flotilla.Options{
		Fleet: "fleet", Namespace: "kube-system", Member: "m", Node: "node", Zone: "zone",
		Rings: []string{"namespaces"}, LeaderLocks: []string{"kube-controller-manager"},
		LeaderLockDelay: 1 * time.Second, ReplanInterval: 2 * time.Second, RebalanceDelay: 3 * time.Second,
		FenceDelay: 4 * time.Second, ShutdownTimeout: shutdownTimeout, HandoffTimeout: 6 * time.Second,
		Handoffs: 7, Standby: true,
		Timing: election.Timing{
			LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 10 * time.Second,
		},
		Registerer: legacyregistry.Registerer(), MetricStability: appmetrics.Stability,
		DisabledMetrics: []string{"flotilla_shard_owned"}, NativeHistograms: true,
		Events: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "fleet", Host: "m"}),
		Clock:  clock,
	}
	elsewhere := []string{
		"Ranges", "Version", "Outside", // For controllers that are added one by one.
		"MetricPrefix", // The default.
	}
	gots, wants := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range gots.NumField() {
		name, value := gots.Type().Field(i).Name, gots.Field(i)
		if value.IsZero() != slices.Contains(elsewhere, name) {
			t.Errorf("%s is %v", name, value)
		}
		if value.Kind() == reflect.Func {
			continue // Called below.
		}
		if !reflect.DeepEqual(value.Interface(), wants.Field(i).Interface()) {
			t.Errorf("%s is %v, want %v", name, value, wants.Field(i))
		}
	}
	if t.Failed() {
		return
	}
	if m := got.Memory(); m.Live != 1 || m.Beside != 2 {
		t.Errorf("the memory is %+v", m)
	}
	if !got.Enforced() {
		t.Error("nothing is enforced")
	}
	if got.Observe(fleet.Event{}); observed != 1 {
		t.Errorf("%d events were observed, want one", observed)
	}
}

// TestEventsNameTheMember sends one.
func TestEventsNameTheMember(t *testing.T) {
	got := optionsOf(t, func(*Options) {}, parts{})
	sent := make(chan *corev1.Event, 1)
	defer broadcaster.StartEventWatcher(func(e *corev1.Event) { sent <- e }).Stop()
	got.Events.Event(&corev1.ObjectReference{Kind: "Lease", Namespace: "kube-system", Name: "l"}, corev1.EventTypeNormal, "Acquired", "x")
	if e, want := <-sent, (corev1.EventSource{Component: "flotilla", Host: "m"}); e.Source != want {
		t.Errorf("the source is %+v, want %+v", e.Source, want)
	}
}

// TestShardsAreComplete finds a part of flotilla.Shards that is forgotten.
func TestShardsAreComplete(t *testing.T) {
	o, process, err := processOf(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	shards, err := shardsOf(o, process, heap.NewReleaser(process.Clock(), nil))
	if err != nil {
		t.Fatal(err)
	}
	for field, value := range reflect.ValueOf(shards).Fields() {
		if value.IsZero() {
			t.Errorf("Shards.%s is not set", field.Name)
		}
	}
}

// counting counts fills.
type counting struct{ begun, inProgress atomic.Int32 }

func (c *counting) Fill() func() {
	c.begun.Add(1)
	c.inProgress.Add(1)
	return sync.OnceFunc(func() { c.inProgress.Add(-1) })
}

func (c *counting) require(t *testing.T, when string, begun, inProgress int32) {
	t.Helper()
	if b, p := c.begun.Load(), c.inProgress.Load(); b != begun || p != inProgress {
		t.Errorf("%s: %d fills have begun, %d of them are in progress; want %d and %d", when, b, p, begun, inProgress)
	}
}

// TestFillsAreReported warms a shard, runs it until its controllers run, and runs one that ends
// before that.
func TestFillsAreReported(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"major":"1","minor":"37","gitVersion":"v1.37.1"}`)
	}))
	t.Cleanup(server.Close)
	_, process, err := processOf(t, []string{"--master=" + server.URL, "--use-service-account-credentials=false"})
	if err != nil {
		t.Fatal(err)
	}
	within := shard.Everything()
	build := func(surplus filler, running func(), controllers ...string) *shardInstance {
		i, err := buildShard(t.Context(), process, surplus, fleet.Work{
			Shard: shard.Shard{ID: shard.ID{Ring: "r", Name: "s"}, Range: within}, Controllers: controllers, Share: 1, Shards: 1, Closed: make(chan struct{}), Running: running,
		})
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	fills := &counting{}
	ctx, cancel := context.WithCancel(t.Context())
	i := build(fills, func() {
		fills.require(t, "when the controllers run", 2, 0)
		cancel()
	})
	if err := i.Warm(ctx); err != nil {
		t.Fatal(err)
	}
	fills.require(t, "after Warm", 1, 0)
	if err := i.Run(ctx); err != nil {
		t.Fatal(err)
	}
	fills.require(t, "after Run", 2, 0)

	fills = &counting{}
	neverFull := build(fills, func() { t.Error("The controllers run with empty caches") }, names.ServiceAccountController)
	if err := neverFull.Run(ctx); err != nil { // The context has ended already.
		t.Fatal(err)
	}
	fills.require(t, "after a Run that ended early", 1, 0)
}

func setNativeHistograms(t *testing.T, to bool) {
	t.Helper()
	gates := utilfeature.DefaultFeatureGate
	featuregatetesting.SetFeatureGateDuringTest(t, gates, metricsfeatures.NativeHistograms, to)
}

// A flag of 0 stays 0. In package flotilla's options, 0 means the default.
func TestZeroIsNever(t *testing.T) {
	options := optionsOf(t, func(o *Options) {
		o.Fleet.LeaderLockDelay, o.Fleet.ReplanInterval, o.Fleet.RebalanceDelay = 0, 0, 0
	}, parts{})
	for name, got := range map[string]time.Duration{
		"--leader-lock-delay": options.LeaderLockDelay,
		"--replan-interval":   options.ReplanInterval,
		"--rebalance-delay":   options.RebalanceDelay,
	} {
		if got != flotilla.Never {
			t.Errorf("%s 0 is %v", name, got)
		}
	}
}

// component-base applies upstream's metrics flags only to metrics that it makes. A member's metrics
// must obey them too.
func TestMetricsFollowUpstreamsFlags(t *testing.T) {
	for _, native := range []bool{true, false} {
		setNativeHistograms(t, native)
		off := []string{"flotilla_shard_owned"}
		got := optionsOf(t, func(o *Options) { o.Metrics.DisabledMetrics = off }, parts{})
		if got.NativeHistograms != native || !slices.Equal(got.DisabledMetrics, off) {
			t.Errorf("with NativeHistograms %v: %+v", native, got)
		}
	}
}
