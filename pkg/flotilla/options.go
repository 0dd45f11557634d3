package flotilla

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
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

// Never as Options.ReplanInterval, RebalanceDelay or LeaderLockDelay means no such interval or
// delay.
const Never time.Duration = -1

// OrNever returns d, or Never for 0. It is for flags whose 0 means no interval or delay.
func OrNever(d time.Duration) time.Duration {
	if d == 0 {
		return Never
	}
	return d
}

// Options describe a fleet and this process's part in it. Fields without a default are required.
// All members should have the same values, except for Member, Node and Zone.
type Options struct {
	// Fleet is the fleet's name, a DNS label: the first part of the names of all its Leases.
	Fleet string
	// Namespace is the namespace of the Leases.
	Namespace string
	// Member is the name of this process, a DNS subdomain, unique in the fleet: a pod's name, for
	// example. A pod that keeps its name over a restart, as in a StatefulSet, gets its shards back.
	Member string
	// Ranges is the number of ranges into which a new fleet divides the namespaces, at most
	// [shard.MaxShards]. Use a few times as many as there will be members. A fleet that has a plan
	// keeps its plan. Default: DefaultRanges.
	Ranges int
	// Version is the program's version, such as "v1.2.3", without spaces. While members differ in
	// the controllers that they have, the newest member decides about those: a new controller
	// begins once all members have it.
	Version string
	// Node and Zone say where the process runs, for people who read the status. Default: not said.
	Node, Zone string
	// Rings are the names of the plan's rings that this member serves. Members of one fleet may
	// serve different rings. Default: all.
	Rings []string
	// LeaderLocks are Leases in Namespace that the fleet must hold to run anything. Name the Lease
	// that the program used for leader election before: it keeps the old leader and the fleet
	// apart, in both directions. A name that is given twice counts once. Default: none.
	LeaderLocks []string
	// LeaderLockDelay is how long a leader lock must be without another holder before the fleet
	// begins. A leader on client-go that releases its Lease while its controllers are still ending
	// needs as long as they take; a leader on controller-runtime releases it afterwards. Default:
	// DefaultLeaderLockDelay.
	LeaderLockDelay time.Duration
	// Timing is the timing of all claims. Default: [election.DefaultTiming], the timing of
	// Kubernetes' own components.
	Timing election.Timing
	// HandoffTimeout is how long a controller may keep writing after its context has ended, while
	// its shard is handed over. Default: DefaultHandoffTimeout.
	HandoffTimeout time.Duration
	// Handoffs is how many shards this member prepares at a time to take over from others, 1 to
	// [shard.MaxShards]. While it prepares a shard, the shard's objects are in memory twice in the
	// fleet. Default: DefaultHandoffs.
	Handoffs int
	// ShutdownTimeout is how long controllers may take to return once their writes are refused,
	// while the member leaves. After that Exit is called, and others wait until the Lease of the
	// shard expires. It must not be negative. Default and maximum: Timing.LeaseDuration.
	ShutdownTimeout time.Duration
	// RebalanceDelay is how long a new member waits for its shards, so that shards do not move each
	// time a short-lived member starts. Default: DefaultRebalanceDelay.
	RebalanceDelay time.Duration
	// ReplanInterval is the minimum time between two changes of the ranges that even out their
	// weights. Default: DefaultReplanInterval.
	ReplanInterval time.Duration
	// Standby makes the member keep warm the caches of shards that it would own if their owner
	// failed: takeovers are faster, and every object is in memory twice.
	Standby bool
	// Enforced reports whether the API server refuses credentials that are marked as fenced on a
	// member's Lease, as it does with deploy/fence. It must be safe for concurrent use and must not
	// block. It is for a program whose controllers have their own credentials and that calls
	// [fleet.Member.PublishCredential] for each before using it. Default: always false.
	Enforced func() bool
	// FenceDelay applies where credentials are Enforced: it is the time from marking a dead
	// member's credentials until its shards run elsewhere, or any that are handed over meanwhile.
	// Within it every API server must have seen the mark. It is at most HandoffTimeout, since a
	// member that leaves waits for it, too. Default: 0.
	FenceDelay time.Duration
	// Memory and Use return what the member writes on its Lease for 'flotilla status': its memory,
	// and its use of other resources. They are called every ten seconds, from one goroutine, and
	// may take a while. Default: the member writes neither.
	Memory func() leaseapi.Memory
	Use    func() leaseapi.Use
	// Registerer receives the fleet's metrics; nil drops them. MetricPrefix begins their names;
	// default "flotilla".
	Registerer   prometheus.Registerer
	MetricPrefix string
	// MetricStability, DisabledMetrics and NativeHistograms make the metrics look like those of the
	// rest of a program, as in [metrics.Options]. Default: no stability, all metrics, classic
	// histograms only.
	MetricStability  string
	DisabledMetrics  []string
	NativeHistograms bool
	// Events receives the Kubernetes events on the fleet's Leases. It should not log them: the
	// fleet logs each one anyway. Default: a recorder of the fleet's own.
	Events record.EventRecorder
	// Outside receives each request that a namespaced controller sends outside of its range through
	// [Shard.Config] or [Shard.Reading], on the goroutine that sends it. It must not block. It is
	// for tests: see docs/library.md. Default: none.
	Outside func(Access)
	// Observe receives what happens to the member's shards, in addition to the log and Kubernetes
	// events on their Leases. It must not block. Default: none.
	Observe func(fleet.Event)
	// Clock measures claims. Default: the machine's.
	Clock election.Clock
	// Exit ends the process at once. It is called when a controller has not returned by the time
	// that others may take its shard, or HandoffTimeout and a LeaseDuration after another controller
	// of the shard failed; when what was prepared does not end long after it was given up; and when
	// one of the member's loops hangs. Default: it logs the reason and ends the process with status 1.
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
	o.LeaderLocks = distinct(o.LeaderLocks)
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
	if len(o.Member) > heartbeat.MaxMemberName {
		refuse("Options.Member", o.Member, []string{validation.MaxLenError(heartbeat.MaxMemberName)})
	}
	if strings.ContainsFunc(o.Version, unicode.IsSpace) {
		refuse("Options.Version", o.Version, []string{"must not contain spaces"})
	}
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

// distinct returns the names in their order, each once.
func distinct(names []string) []string {
	var all []string
	for _, name := range names {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
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
	time.AfterFunc(mostLogging, func() { os.Exit(1) })
	klog.Background().Error(errors.New(reason), "Ending the process")
	klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	os.Exit(1) // in case somebody has replaced klog's exit function
}

// mostLogging bounds how long exit waits for the log, which nobody may be reading.
const mostLogging = 2 * time.Second
