package cloud

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/version"

	"github.com/flotilla-kube/flotilla/internal/flags"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// component is upstream's name for itself.
const component = "cloud-controller-manager"

const (
	defaultFleetName = "flotilla-cloud"
	// noLeaderLock is the value of --leader-lock that stands for none.
	noLeaderLock = "none"
)

// common is what is specific to this command in the flags that all members have.
var common = flags.Command{
	MaxShards: shard.MaxShards,
	MayGoOn:   "how long calls to the cloud may go on once a shard is to be handed over",
}

// fleetOptions are the options that upstream does not have.
type fleetOptions struct {
	flags.Common
	leaderLocks       []string
	undividedServices bool
}

func newFleetOptions() *fleetOptions {
	return &fleetOptions{Common: flags.Defaults(defaultFleetName)}
}

func (o *fleetOptions) addFlags(fs *pflag.FlagSet) {
	o.Common.AddFlags(fs, common)
	fs.StringArrayVar(
		&o.leaderLocks, "leader-lock", o.leaderLocks,
		"A foreign Lease in the leader-election namespace that the fleet must hold while any "+
			"member runs. By default it is the one of --leader-elect-resource-name: a stock "+
			"cloud controller manager leads by that, so whichever of the two runs, the other "+
			"one waits. 'none' is for a fleet beside which no stock one is ever started. May be "+
			"given more than once.",
	)
	fs.BoolVar(
		&o.undividedServices, "undivided-services", o.undividedServices,
		"Run service-lb-controller once in the fleet, on all namespaces, instead of once on each "+
			"range of namespaces: for a cloud in which load balancers share something that is "+
			"changed by reading it and writing it back. Must be the same on all members; stop "+
			"the fleet to change it.",
	)
}

// validate returns all faults of the fleet's options, and of upstream's options that have a special
// meaning in a fleet, each with the flag's name.
func (o *fleetOptions) validate(c *config.Config) error {
	errs := o.Common.Validate(common)
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, leaderLock := range o.leaderLocks {
		if why := validation.IsDNS1123Subdomain(leaderLock); len(why) > 0 {
			fault("--leader-lock %q: must be the name of a Lease: %s", leaderLock, strings.Join(why, "; "))
		}
		if leaderLock == noLeaderLock && len(o.leaderLocks) > 1 {
			fault("--leader-lock %q: must be the only one", noLeaderLock)
		}
	}
	le := c.ComponentConfig.Generic.LeaderElection
	if le.ResourceLock != resourcelock.LeasesResourceLock {
		fault(
			"--leader-elect-resource-lock %q: must be %q", le.ResourceLock,
			resourcelock.LeasesResourceLock,
		)
	}
	if err := timing(c).Validate(); err != nil {
		fault("--leader-elect-lease-duration %v, --leader-elect-renew-deadline %v and "+
			"--leader-elect-retry-period %v: %w",
			le.LeaseDuration.Duration, le.RenewDeadline.Duration, le.RetryPeriod.Duration, err)
	}
	if c.ComponentConfig.Generic.LeaderMigrationEnabled {
		fault(
			"--enable-leader-migration: a fleet does not migrate controllers one by one: name " +
				"both Leases with --leader-lock, so that it waits until neither has another " +
				"holder",
		)
	}
	return errors.Join(errs...)
}

func timing(c *config.Config) election.Timing {
	le := c.ComponentConfig.Generic.LeaderElection
	return election.Timing{
		LeaseDuration: le.LeaseDuration.Duration,
		RenewDeadline: le.RenewDeadline.Duration,
		RetryPeriod:   le.RetryPeriod.Duration,
	}
}

// options returns the fleet's options that the flags ask for.
func (o *fleetOptions) options(c *config.Config) flotilla.Options {
	leaderLocks := o.leaderLocks
	switch {
	case len(leaderLocks) == 0:
		leaderLocks = []string{c.ComponentConfig.Generic.LeaderElection.ResourceName}
	case leaderLocks[0] == noLeaderLock:
		leaderLocks = nil
	}
	return flotilla.Options{
		Fleet:     o.Name,
		Namespace: c.ComponentConfig.Generic.LeaderElection.ResourceNamespace,
		Member:    o.Member, Node: o.Node, Zone: o.Zone,
		Ranges:         o.Shards,
		Version:        version.Get().GitVersion,
		LeaderLocks:    leaderLocks,
		Timing:         timing(c),
		HandoffTimeout: o.HandoffTimeout,
		RebalanceDelay: flotilla.OrNever(o.RebalanceDelay),
		ReplanInterval: flotilla.OrNever(o.ReplanInterval),
		Standby:        o.Standby,
		Registerer:     legacyregistry.Registerer(),
	}
}
