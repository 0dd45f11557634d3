package app

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	cliflag "k8s.io/component-base/cli/flag"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"

	"github.com/flotilla-kube/flotilla/internal/app/shadow"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Bounds and defaults of the fleet's flags.
const (
	defaultFleetName   = "flotilla"
	defaultFenceDelay  = 200 * time.Millisecond
	maxFenceDelay      = time.Minute
	maxRebalanceDelay  = time.Hour
	minReplanInterval  = 10 * time.Second
	maxReplanInterval  = 24 * time.Hour
	minHandoffTimeout  = time.Second
	maxHandoffTimeout  = 5 * time.Minute
	maxLeaderLockDelay = time.Minute
	allRings           = "*"
)

// Options are all options of the command: upstream's, and the fleet's.
type Options struct {
	*options.KubeControllerManagerOptions
	Fleet FleetOptions
}

// FleetOptions are the options that upstream does not have.
type FleetOptions struct {
	// Name of the fleet: the first part of the names of all its Leases, a DNS label.
	Name string
	// Member is this process's name in the fleet, a DNS subdomain. Default: the host
	// name, which in a pod is the pod's.
	Member string
	// Shards is the number of equal ranges of namespaces in the fleet's first plan, 1 to shard.MaxShards less
	// the cluster-scoped groups.
	Shards int
	// Rings are the rings that the member serves, "*" for all.
	Rings []string
	// ReplanInterval is how long the planner waits between changes of plan that the weights of namespaces ask for; 0 is
	// never, else 10 s to 24 h.
	ReplanInterval time.Duration
	// RebalanceDelay is how long a member must have been there before it is given
	// shards while others are active; 0 to one hour.
	RebalanceDelay time.Duration
	// HandoffTimeout bounds the steps of a handoff; 1 s to 5 minutes.
	HandoffTimeout time.Duration
	// Node and Zone are where this process runs, for people; empty if that is not known.
	Node, Zone string
	// Handoffs is how many shards the member prepares for at a time; 1 to shard.MaxShards.
	Handoffs int
	// Standby keeps caches warm for takeovers.
	Standby bool
	// ShareKubeAPILimits has --kube-api-qps and --kube-api-burst be the fleet's limits, not each member's.
	ShareKubeAPILimits bool
	// LeaderLocks are the Leases that the fleet must hold while it runs, each NAME or
	// NAME=CONTROLLER,..., or "none" alone. Default: the Lease of --leader-elect-resource-name.
	LeaderLocks []string
	// LeaderLockDelay is how long nobody else must have kept a leader lock before a fleet of which
	// nothing runs begins; 0 to one minute.
	LeaderLockDelay time.Duration
	// Shadow has the process rehearse for a member and write nothing; the zero Part is for a real one.
	Shadow shadow.Part
	// ShadowRightsOf is the user whose rights a shadow asks for; empty for its own.
	ShadowRightsOf string
	// FenceDelay is how long the API server is given to see that a dead member is fenced, before its shards run; 0 to
	// one minute, and at most HandoffTimeout.
	FenceDelay time.Duration
}

// Environment variables that the manifests set, and that an earlier version, which has no such flags, does not mind.
const (
	nodeVariable = "NODE_NAME"
	zoneVariable = "ZONE"
)

// NewOptions returns the options with their defaults.
func NewOptions() (*Options, error) {
	upstream, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	hostname, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the host name, the default of --member-name: %w", err)
	}
	return &Options{
		KubeControllerManagerOptions: upstream,
		Fleet: FleetOptions{
			Name: defaultFleetName, Member: strings.ToLower(hostname), Rings: []string{allRings},
			Node: os.Getenv(nodeVariable), Zone: os.Getenv(zoneVariable),
			Shards: flotilla.DefaultRanges, Handoffs: flotilla.DefaultHandoffs,
			ReplanInterval: flotilla.DefaultReplanInterval, RebalanceDelay: flotilla.DefaultRebalanceDelay,
			HandoffTimeout:  flotilla.DefaultHandoffTimeout,
			LeaderLockDelay: flotilla.DefaultLeaderLockDelay, FenceDelay: defaultFenceDelay,
		},
	}, nil
}

// Flags returns all flags in named sections, the fleet's first.
func (o *Options) Flags() cliflag.NamedFlagSets {
	upstream := o.KubeControllerManagerOptions.Flags(kcm.KnownControllers(), kcm.ControllersDisabledByDefault(), kcm.ControllerAliases())
	var all cliflag.NamedFlagSets
	o.Fleet.AddFlags(all.FlagSet("fleet"))
	for _, section := range upstream.Order {
		all.FlagSet(section).AddFlagSet(upstream.FlagSets[section])
	}
	return all
}

// AddFlags adds the fleet's flags.
func (o *FleetOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Name, "fleet-name", o.Name, "The fleet that this process is a member of. All its Leases are named after it.")
	fs.StringVar(&o.Member, "member-name", o.Member, "The name of this process in the fleet, unique among its members. In a StatefulSet the host name, which is the default, is the pod's name.")
	fs.StringVar(&o.Node, "node-name", o.Node, "The node that this process runs on, for 'flotilla status' to show. By default the environment variable "+nodeVariable+".")
	fs.StringVar(&o.Zone, "zone", o.Zone, "The zone of that node, likewise. By default the environment variable "+zoneVariable+".")
	fs.IntVar(&o.Shards, "shards", o.Shards, fmt.Sprintf("The number of equal ranges that the namespaces are cut into at first, from 1 to %d. It counts for a fleet that has no plan yet; afterwards the plan says it, and is changed with 'flotilla plan'.", maxShards()))
	fs.StringSliceVar(&o.Rings, "rings", o.Rings, "The rings of the plan that this member serves, '*' for all of them.")
	fs.DurationVar(&o.ReplanInterval, "replan-interval", o.ReplanInterval, "How long the planner waits at least between two changes of plan that even out the weight of the members, unless that is very uneven. What was moved for that rests for twelve times as long. 0 to leave the plan to 'flotilla plan'. Whichever member plans goes by its own flag.")
	fs.StringArrayVar(&o.LeaderLocks, "leader-lock", o.LeaderLocks, "A foreign Lease in the leader-election namespace that the fleet must hold while any member runs. By default it is the one of --leader-elect-resource-name: a stock controller manager leads by that, so whichever of the two runs, the other one waits. 'none' is for a fleet beside which no stock controller manager is ever started. NAME=CONTROLLER,... says that the Lease stands for these controllers only, and then no others may be enabled; serviceaccount-token-controller, which otherwise runs whatever --controllers says, then runs only if it is named. May be given more than once.")
	fs.DurationVar(&o.LeaderLockDelay, "leader-lock-delay", o.LeaderLockDelay, "How long nobody else must have kept the Leases of --leader-lock, before a fleet of which nothing runs begins. A stock controller manager that releases its Lease does so as it begins to stop, and its controllers may go on for a moment.")
	fs.DurationVar(&o.RebalanceDelay, "rebalance-delay", o.RebalanceDelay, "How long a member must have been there before it is given shards, while others are active. A member that leaves or fails is replaced at once.")
	fs.DurationVar(&o.HandoffTimeout, "handoff-timeout", o.HandoffTimeout, "Bounds each step of a planned handoff: how long a shard's controllers may go on writing once they have been asked to stop, and how long a member that leaves waits for the next owner of a shard to be ready. A process that is told to end needs up to twice this and some 15 seconds more.")
	fs.IntVar(&o.Handoffs, "max-concurrent-handoffs", o.Handoffs, "How many shards a member prepares to take over from others at a time. Each is listed and cached twice in the fleet meanwhile.")
	fs.BoolVar(&o.Standby, "standby", o.Standby, "Keep the caches of those shards warm that this member would take over if their holder failed. A takeover then does not list whole objects; every object is cached twice in the fleet.")
	fs.BoolVar(&o.ShareKubeAPILimits, "share-kube-api-limits", o.ShareKubeAPILimits, "The limits of --kube-api-qps and --kube-api-burst are the fleet's and not each member's: of a controller of a namespaced ring, a member has the part of them that the shards which it runs are of the ring. A controller of a group runs on one member, and has all of them there. Set it on all members or on none.")
	fs.Var(&o.Shadow, "shadow", "Be no member, and write nothing: fill the caches of what the first member would own, or with K/N the K-th of N members, by the plan of the fleet of this name or else by --shards, run its controllers, and report what they would have written, memory, watches and missing rights. See docs/shadow.md.")
	fs.Lookup("shadow").NoOptDefVal = shadow.Whole
	fs.StringVar(&o.ShadowRightsOf, "shadow-rights-of", o.ShadowRightsOf, "With --shadow: the user whose rights are asked for where a member would make requests in its own name. By default it is whoever the shadow is.")
	fs.DurationVar(&o.FenceDelay, "fence-delay", o.FenceDelay, "How long every API server is given to see that a dead member is fenced, before that member's shards are run elsewhere. It counts only where the admission policy flotilla-fence is installed, and with --use-service-account-credentials. At most --handoff-timeout: a member that is told to end waits for it, too.")
}

func maxShards() int {
	plan, err := catalogue.DefaultPlan(1)
	if err != nil {
		return shard.MaxShards
	}
	return shard.MaxShards - len(plan.Shards()) + 1
}

// Validate returns all faults of the fleet's options and of those of upstream's that
// a fleet gives a meaning of its own, each with the flag's name.
func (o *Options) Validate() error {
	var errs []error
	errs = append(errs, o.checkLeaderLockFlags()...)
	if errs = append(errs, o.Fleet.validate()...); !o.Generic.LeaderElection.LeaderElect {
		return utilerrors.NewAggregate(errs)
	}
	le := o.Generic.LeaderElection
	if err := o.timing().Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--leader-elect-lease-duration %v, --leader-elect-renew-deadline %v and --leader-elect-retry-period %v: %w",
			le.LeaseDuration.Duration, le.RenewDeadline.Duration, le.RetryPeriod.Duration, err))
	}
	if faults := validation.IsDNS1123Label(le.ResourceNamespace); len(faults) > 0 {
		errs = append(errs, fmt.Errorf("--leader-elect-resource-namespace %q: must be the name of a namespace: %s",
			le.ResourceNamespace, strings.Join(faults, "; ")))
	}
	if le.ResourceLock != resourcelock.LeasesResourceLock {
		errs = append(errs, fmt.Errorf("--leader-elect-resource-lock %q: must be %q", le.ResourceLock, resourcelock.LeasesResourceLock))
	}
	return utilerrors.NewAggregate(errs)
}

func (o *FleetOptions) validate() []error {
	var errs []error
	faults := validation.IsDNS1123Label(o.Name)
	if len(faults) > 0 || len(o.Name) > fleet.MaxFleetName {
		errs = append(errs, fmt.Errorf("--fleet-name %q: must be a DNS label of at most %d characters: %s",
			o.Name, fleet.MaxFleetName, strings.Join(faults, "; ")))
	}
	if faults := validation.IsDNS1123Subdomain(election.MemberLease(o.Name, o.Member)); o.Member == "" || len(faults) > 0 {
		errs = append(errs, fmt.Errorf("--member-name %q: must make the Lease name %q a DNS subdomain: %s", o.Member, election.MemberLease(o.Name, o.Member), strings.Join(faults, "; ")))
	}
	if faults := validation.IsDNS1123Subdomain(o.Node); o.Node != "" && len(faults) > 0 {
		errs = append(errs, fmt.Errorf("--node-name (or %s) %q: must be the name of a node: %s", nodeVariable, o.Node, strings.Join(faults, "; ")))
	}
	if faults := validation.IsValidLabelValue(o.Zone); len(faults) > 0 {
		errs = append(errs, fmt.Errorf("--zone (or %s) %q: must be the value of a label: %s", zoneVariable, o.Zone, strings.Join(faults, "; ")))
	}
	if o.Shards < 1 || o.Shards > maxShards() {
		errs = append(errs, fmt.Errorf("--shards %d: must be from 1 to %d", o.Shards, maxShards()))
	}
	if faults := checkRings(o.Rings); len(faults) > 0 {
		errs = append(errs, fmt.Errorf("--rings %q: must be '*' or names of rings: %s", strings.Join(o.Rings, ","), strings.Join(faults, "; ")))
	}
	if o.ReplanInterval != 0 && (o.ReplanInterval < minReplanInterval || o.ReplanInterval > maxReplanInterval) {
		errs = append(errs, fmt.Errorf("--replan-interval %v: must be 0s or from %v to %v", o.ReplanInterval, minReplanInterval, maxReplanInterval))
	}
	if o.RebalanceDelay < 0 || o.RebalanceDelay > maxRebalanceDelay {
		errs = append(errs, fmt.Errorf("--rebalance-delay %v: must be from 0s to %v", o.RebalanceDelay, maxRebalanceDelay))
	}
	if o.HandoffTimeout < minHandoffTimeout || o.HandoffTimeout > maxHandoffTimeout {
		errs = append(errs, fmt.Errorf("--handoff-timeout %v: must be from %v to %v", o.HandoffTimeout, minHandoffTimeout, maxHandoffTimeout))
	}
	if o.Handoffs < 1 || o.Handoffs > shard.MaxShards {
		errs = append(errs, fmt.Errorf("--max-concurrent-handoffs %d: must be from 1 to %d", o.Handoffs, shard.MaxShards))
	}
	if o.ShadowRightsOf != "" && !o.Shadow.Enabled() {
		errs = append(errs, fmt.Errorf("--shadow-rights-of %q: needs --shadow", o.ShadowRightsOf))
	}
	if o.LeaderLockDelay < 0 || o.LeaderLockDelay > maxLeaderLockDelay {
		errs = append(errs, fmt.Errorf("--leader-lock-delay %v: must be from 0s to %v", o.LeaderLockDelay, maxLeaderLockDelay))
	}
	if o.FenceDelay < 0 || o.FenceDelay > maxFenceDelay {
		errs = append(errs, fmt.Errorf("--fence-delay %v: must be from 0s to %v", o.FenceDelay, maxFenceDelay))
	} else if o.FenceDelay > o.HandoffTimeout {
		errs = append(errs, fmt.Errorf("--fence-delay %v: must be at most --handoff-timeout, which is %v", o.FenceDelay, o.HandoffTimeout))
	}
	return errs
}

func checkRings(rings []string) []string {
	if slices.Equal(rings, []string{allRings}) {
		return nil
	}
	if len(rings) == 0 {
		return []string{"none is given"}
	}
	var faults []string
	for _, r := range rings {
		if _, err := shard.ParseID(r + "/x"); err != nil {
			faults = append(faults, err.Error())
		}
	}
	return faults
}

// rings returns the rings to serve, none for all.
func (o *FleetOptions) rings() []string {
	if slices.Equal(o.Rings, []string{allRings}) {
		return nil
	}
	return o.Rings
}

// timing returns the Lease timings that the --leader-elect-* flags ask for.
func (o *Options) timing() election.Timing {
	le := o.Generic.LeaderElection
	return election.Timing{
		LeaseDuration: le.LeaseDuration.Duration,
		RenewDeadline: le.RenewDeadline.Duration,
		RetryPeriod:   le.RetryPeriod.Duration,
	}
}
