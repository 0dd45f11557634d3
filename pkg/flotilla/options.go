package flotilla

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Defaults of [Options].
const (
	DefaultRanges          = 16
	DefaultRebalanceDelay  = 10 * time.Second
	DefaultReplanInterval  = 5 * time.Minute
	DefaultLeaderLockDelay = 500 * time.Millisecond
	DefaultHandoffTimeout  = fleet.DefaultHandoffTimeout
	DefaultHandoffs        = fleet.DefaultHandoffs
)

// Never as Options.ReplanInterval, RebalanceDelay or LeaderLockDelay stands for no such interval or
// delay.
const Never time.Duration = -1

// OrNever returns d, or Never for 0: for flags by which 0 is no such interval or delay.
func OrNever(d time.Duration) time.Duration {
	if d == 0 {
		return Never
	}
	return d
}

// Options say which fleet a process belongs to, and how it does. Fields without a default are
// required. All members should have the same, but for Member, Node and Zone.
type Options struct {
	// Fleet is the fleet's name, a DNS label: the first part of the names of all its Leases.
	Fleet string
	// Namespace is where the Leases are.
	Namespace string
	// Member is this process's name, unique in the fleet, a DNS subdomain: a pod's name. A pod
	// that keeps its name over a restart, as in a StatefulSet, gets its shards back.
	Member string
	// Ranges is how many ranges the namespaces are divided into when the fleet begins, default
	// DefaultRanges: a few times as many as there will be members, at most [shard.MaxShards]. A fleet
	// that has a plan goes on by that.
	Ranges int
	// Version is the program's, such as "v1.2.3". While members differ in the controllers that they
	// have, the newest decides what becomes of them: a new one begins once all members have it.
	Version string
	// Node and Zone are where the process runs, for people. Default: not said.
	Node, Zone string
	// Rings are the names of the rings of the plan that this member serves: members of one fleet may
	// serve different ones. Default: all.
	Rings []string
	// LeaderLocks are Leases in Namespace that the fleet holds while it runs anything. The Lease of
	// the leader election that the program had before keeps the old leader and the fleet apart, in
	// both directions. Default: none.
	LeaderLocks []string
	// LeaderLockDelay is how long nobody else must have held a leader lock before the fleet begins.
	// A leader on client-go that releases its Lease while its controllers are still ending needs as
	// long as that takes; one on controller-runtime releases it afterwards. Default
	// DefaultLeaderLockDelay.
	LeaderLockDelay time.Duration
	// Timing of all claims. Default: [election.DefaultTiming], that of Kubernetes' own components.
	Timing election.Timing
	// HandoffTimeout is how long a controller may go on writing when its shard is to be handed
	// over. Default DefaultHandoffTimeout.
	HandoffTimeout time.Duration
	// Handoffs is how many shards this member prepares to take over from others at a time, 1 to
	// [shard.MaxShards]: what it prepares is in memory twice in the fleet meanwhile. Default
	// DefaultHandoffs.
	Handoffs int
	// ShutdownTimeout is how long controllers may take to return once their writes are refused, while
	// the member leaves: then Exit is called, and others wait until the Lease of the shard expires.
	// Default, and most: Timing.LeaseDuration. It must not be negative.
	ShutdownTimeout time.Duration
	// RebalanceDelay is how long a new member waits for its shards, so that they do not move each
	// time a member restarts that does not live long. Default DefaultRebalanceDelay.
	RebalanceDelay time.Duration
	// ReplanInterval is the least time between two changes of the ranges that are made because some
	// weigh more than others.
	// Default DefaultReplanInterval.
	ReplanInterval time.Duration
	// Standby has the member keep the caches warm of shards that it would own if their owner
	// failed: takeovers are faster, and every object is in memory twice.
	Standby bool
	// Enforced reports whether the API server refuses credentials that are marked as fenced on a
	// member's Lease: that of deploy/fence does. It must be safe for concurrent use and must not
	// block. It is for a program whose controllers have credentials of their own, each of which it
	// names by [fleet.Member.PublishCredential] before it is used. Default: it does not.
	Enforced func() bool
	// FenceDelay is how long after the credentials of a dead member are marked its shards are run
	// elsewhere, where that is Enforced: every API server must have seen the mark. It is at most
	// HandoffTimeout, since a member that leaves waits for it, too. Default: 0.
	FenceDelay time.Duration
	// Memory and Use return what the member says on its Lease of the memory and of what else the
	// process uses, for 'flotilla status'. They are called every ten seconds, from one goroutine, and
	// may take a while. Default: it says nothing.
	Memory func() leaseapi.Memory
	Use    func() leaseapi.Use
	// Registerer is where the metrics of the fleet go, MetricPrefix the first part of their names.
	// Default: they go nowhere; "flotilla".
	Registerer   prometheus.Registerer
	MetricPrefix string
	// MetricStability, DisabledMetrics and NativeHistograms have the metrics look like those of the
	// rest of a program, as in [metrics.Options]. Default: no stability, all metrics, classic
	// histograms alone.
	MetricStability  string
	DisabledMetrics  []string
	NativeHistograms bool
	// Events takes the Kubernetes events on the fleet's Leases. It should not log them as well: each
	// is a log line anyway. Default: one of the fleet's own.
	Events record.EventRecorder
	// Outside receives each request that a namespaced controller makes outside of its range through
	// [Shard.Config] or [Shard.Reading], on the goroutine that makes it. It must not block. It is for
	// tests: see docs/library.md. Default: none.
	Outside func(Access)
	// Observe receives what happens to the member's shards, in addition to the log and Kubernetes
	// events on their Leases. It must not block. Default: none.
	Observe func(fleet.Event)
	// Clock measures claims. Default: the machine's.
	Clock election.Clock
	// Exit ends the process at once. It is called when a controller has not returned by the time
	// that others may take its shard. Default: it logs the reason and ends the process with status 1.
	Exit func(reason string)
}

// complete returns the options with their defaults, or an error that names each field that is out
// of bounds.
func (o Options) complete() (Options, error) {
	if o.Ranges == 0 {
		o.Ranges = DefaultRanges
	}
	if o.Timing == (election.Timing{}) {
		o.Timing = election.DefaultTiming()
	}
	if o.Clock == nil {
		o.Clock = election.NewClock()
	}
	if o.Exit == nil {
		o.Exit = exit
	}
	if o.Observe == nil {
		o.Observe = func(fleet.Event) {}
	}
	o.RebalanceDelay = orDefault(o.RebalanceDelay, DefaultRebalanceDelay)
	o.LeaderLockDelay = orDefault(o.LeaderLockDelay, DefaultLeaderLockDelay)
	o.ReplanInterval = orDefault(o.ReplanInterval, DefaultReplanInterval)
	if o.HandoffTimeout == 0 {
		o.HandoffTimeout = DefaultHandoffTimeout
	}
	if o.Handoffs == 0 {
		o.Handoffs = DefaultHandoffs
	}
	var errs []error
	refuse := func(field, value string, why []string) {
		for _, w := range why {
			errs = append(errs, fmt.Errorf("%s is %q: %s", field, value, w))
		}
	}
	if len(o.Fleet) > fleet.MaxFleetName {
		refuse("Options.Fleet", o.Fleet, []string{validation.MaxLenError(fleet.MaxFleetName)})
	} else {
		refuse("Options.Fleet", o.Fleet, validation.IsDNS1123Label(o.Fleet))
	}
	refuse("Options.Namespace", o.Namespace, validation.IsDNS1123Label(o.Namespace))
	refuse("Options.Member", o.Member, validation.IsDNS1123Subdomain(o.Member))
	for _, lock := range o.LeaderLocks {
		refuse("Options.LeaderLocks", lock, validation.IsDNS1123Subdomain(lock))
	}
	if o.Ranges < 1 || o.Ranges > shard.MaxShards {
		errs = append(errs, fmt.Errorf("Options.Ranges is %d: must be 1 to %d", o.Ranges, shard.MaxShards))
	}
	for _, ring := range o.Rings {
		if _, err := shard.ParseID(ring + "/x"); err != nil {
			errs = append(errs, fmt.Errorf("Options.Rings has %q: must be names of rings: %w", ring, err))
		}
	}
	if o.Handoffs < 1 || o.Handoffs > shard.MaxShards {
		errs = append(errs, fmt.Errorf(
			"Options.Handoffs is %d: must be 1 to %d", o.Handoffs, shard.MaxShards))
	}
	if o.HandoffTimeout < 0 {
		errs = append(errs, fmt.Errorf("Options.HandoffTimeout is %v: must not be negative", o.HandoffTimeout))
	} else if o.FenceDelay < 0 || o.FenceDelay > o.HandoffTimeout {
		errs = append(errs, fmt.Errorf(
			"Options.FenceDelay is %v: must be 0s to HandoffTimeout, %v", o.FenceDelay, o.HandoffTimeout))
	}
	if o.ShutdownTimeout < 0 {
		errs = append(errs, fmt.Errorf(
			"Options.ShutdownTimeout is %v: must not be negative", o.ShutdownTimeout))
	}
	if err := o.Timing.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("Options.%w", err))
	}
	return o, errors.Join(errs...)
}

func orDefault(d, otherwise time.Duration) time.Duration {
	switch {
	case d == 0:
		return otherwise
	case d < 0:
		return 0
	}
	return d
}

func exit(reason string) {
	klog.Background().Error(errors.New(reason), "Ending the process")
	klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	os.Exit(1) // should somebody have replaced klog's
}
