package flotilla

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/events"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/planner"
	"github.com/flotilla-kube/flotilla/pkg/metrics"
)

// newMember makes the member that runs the shards. end ends everything that was started for it.
func (f *Fleet) newMember(
	logger klog.Logger, shards Shards,
) (member *fleet.Member, end func(), err error) {
	o := f.options
	client, err := kubernetes.NewForConfig(fleet.LeaseConfig(f.config, o.Member))
	if err != nil {
		return nil, nil, fmt.Errorf("creating the client for Leases: %w", err)
	}
	counted, err := metrics.New(metrics.Options{
		Fleet: o.Fleet, Prefix: o.MetricPrefix, Stability: o.MetricStability,
		Disabled: o.DisabledMetrics, NativeHistograms: o.NativeHistograms,
	})
	if err != nil {
		return nil, nil, err
	}
	sent, end := f.events(client)
	defer func() {
		if err != nil {
			end()
		}
	}()
	recorder := events.NewRecorder(events.Config{
		Fleet: o.Fleet, Member: o.Member, Namespace: o.Namespace, Events: sent, Count: counted.Count,
		Logger: logger,
	})
	c := f.configure(shards, client.CoordinationV1().Leases(o.Namespace))
	c.Observe = func(e fleet.Event) { recorder.Observe(e); o.Observe(e) }
	member, err = fleet.New(c)
	if err != nil || o.Registerer == nil {
		return member, end, err
	}
	return member, end, counted.Register(o.Registerer, metrics.Source{
		Member: member, Informers: shards.Informers, Enforced: o.Enforced,
	})
}

// configure returns the configuration of the member, without an observer of events.
func (f *Fleet) configure(shards Shards, leases fleet.Leases) fleet.Config {
	o := f.options
	return fleet.Config{
		Fleet: o.Fleet, Member: o.Member, Node: o.Node, Zone: o.Zone,
		Plan:            shards.Plan,
		Check:           shards.Check,
		Catalogue:       shards.Catalogue,
		Forgets:         shards.Forgets,
		Build:           shards.Build,
		Expect:          shards.Expect,
		Rings:           o.Rings,
		LeaderLocks:     o.LeaderLocks,
		LeaderLockDelay: o.LeaderLockDelay,
		Leases:          leases,
		ServerPath:      f.serverPath,
		Clock:           o.Clock,
		Timing:          o.Timing,
		RebalanceDelay:  o.RebalanceDelay,
		Replanning:      planner.Replanning{Interval: o.ReplanInterval},
		Memory:          o.Memory,
		Use:             o.Use,
		HandoffTimeout:  o.HandoffTimeout,
		ShutdownTimeout: o.ShutdownTimeout,
		Handoffs:        o.Handoffs,
		Standby:         o.Standby,
		Enforced:        o.Enforced,
		FenceDelay:      o.FenceDelay,
		Exit:            o.Exit,
	}
}

// events returns the recorder of the fleet's events, and a function that ends it. The function does
// nothing for a recorder that the program provided.
func (f *Fleet) events(client kubernetes.Interface) (sent record.EventRecorder, end func()) {
	o := f.options
	if o.Events != nil {
		return o.Events, func() {}
	}
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(
		&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(o.Namespace)})
	source := corev1.EventSource{Component: o.Fleet, Host: o.Member}
	return broadcaster.NewRecorder(scheme.Scheme, source), broadcaster.Shutdown
}
