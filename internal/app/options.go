package app

import (
	"fmt"
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
	"github.com/flotilla-kube/flotilla/internal/flags"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Bounds and defaults of the fleet's flags, in addition to those of package flags.
const (
	defaultFleetName   = "flotilla"
	defaultFenceDelay  = 200 * time.Millisecond
	maxFenceDelay      = time.Minute
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
	flags.Common
	// Rings are the rings that the member serves, "*" for all.
	Rings []string
	// Handoffs is how many shards the member prepares at a time; 1 to shard.MaxShards.
	Handoffs int
	// ShareKubeAPILimits makes --kube-api-qps and --kube-api-burst limits of the fleet, not of each
	// member.
	ShareKubeAPILimits bool
	// LeaderLocks are the Leases that the fleet must hold while it runs, each NAME or
	// NAME=CONTROLLER,..., or "none" alone. Default: the Lease of --leader-elect-resource-name.
	LeaderLocks []string
	// LeaderLockDelay is how long a leader lock must have been free of other holders before an idle
	// fleet begins; 0 to one minute.
	LeaderLockDelay time.Duration
	// Shadow makes the process rehearse as a member and write nothing; the zero Part is a real
	// member.
	Shadow shadow.Part
	// ShadowRightsOf is the user whose rights a shadow checks; empty for its own.
	ShadowRightsOf string
	// FenceDelay is the time for the API server to see that a dead member is fenced, before its
	// shards run; 0 to one minute, and at most HandoffTimeout.
	FenceDelay time.Duration
}

// NewOptions returns the options with their defaults.
func NewOptions() (*Options, error) {
	upstream, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return nil, err
	}
	return &Options{
		KubeControllerManagerOptions: upstream,
		Fleet: FleetOptions{
			Common: flags.Defaults(defaultFleetName), Rings: []string{allRings}, Handoffs: flotilla.DefaultHandoffs,
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
	o.Common.AddFlags(fs, common())
	fs.StringSliceVar(&o.Rings, "rings", o.Rings, "The rings of the plan that this member serves, '*' for all of them.")
	fs.StringArrayVar(&o.LeaderLocks, "leader-lock", o.LeaderLocks, "A foreign Lease in the leader-election namespace that the fleet must hold while any member runs. By default it is the one of --leader-elect-resource-name: a stock controller manager leads by that, so whichever of the two runs, the other one waits. 'none' is for a fleet beside which no stock controller manager is ever started. NAME=CONTROLLER,... says that the Lease stands for these controllers only, and then no others may be enabled; serviceaccount-token-controller, which otherwise runs whatever --controllers says, then runs only if it is named. May be given more than once.")
	fs.DurationVar(&o.LeaderLockDelay, "leader-lock-delay", o.LeaderLockDelay, "How long nobody else must have kept the Leases of --leader-lock before a member runs anything, unless it joins a fleet at work. A stock controller manager that releases its Lease does so as it begins to stop, and its controllers may go on for a moment.")
	fs.IntVar(&o.Handoffs, "max-concurrent-handoffs", o.Handoffs, "How many shards a member prepares to take over from others at a time. Each is listed and cached twice in the fleet meanwhile.")
	fs.BoolVar(&o.ShareKubeAPILimits, "share-kube-api-limits", o.ShareKubeAPILimits, "The limits of --kube-api-qps and --kube-api-burst are the fleet's and not each member's: of a controller of a namespaced ring, a member has the part of them that the shards which it runs are of the ring. A controller of a group runs on one member, and has all of them there. Set it on all members or on none.")
	fs.Var(&o.Shadow, "shadow", "Do not become a member, and write nothing: fill the caches of what the first member would own, or with K/N the K-th of N members, by the plan of the fleet of this name or else by --shards, run its controllers, and report what they would have written, memory, watches and missing rights. See docs/shadow.md.")
	fs.Lookup("shadow").NoOptDefVal = shadow.Whole
	fs.StringVar(&o.ShadowRightsOf, "shadow-rights-of", o.ShadowRightsOf, "With --shadow: the user whose rights are asked for where a member would make requests in its own name. By default it is the shadow's own user.")
	fs.DurationVar(&o.FenceDelay, "fence-delay", o.FenceDelay, "How long every API server is given to see that a dead member is fenced, before that member's shards, or any that are handed over meanwhile, are run. It counts only where the admission policy flotilla-fence is installed, and with --use-service-account-credentials. At most --handoff-timeout: a member that is told to end waits for it, too.")
}

// common is what is specific to this command in the flags that all members have.
func common() flags.Command { return flags.Command{MaxShards: maxShards(), Planned: true} }

func maxShards() int {
	plan, err := catalogue.DefaultPlan(1)
	if err != nil {
		return shard.MaxShards
	}
	return shard.MaxShards - len(plan.Shards()) + 1
}

// Validate returns all faults of the fleet's options, and of upstream's options that have a special
// meaning in a fleet, each with the flag's name.
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
	errs := o.Common.Validate(common())
	if faults := checkRings(o.Rings); len(faults) > 0 {
		errs = append(errs, fmt.Errorf("--rings %q: must be '*' or names of rings: %s", strings.Join(o.Rings, ","), strings.Join(faults, "; ")))
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
