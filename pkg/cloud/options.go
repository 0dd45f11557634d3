package cloud

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/version"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// component is upstream's name for itself.
const component = "cloud-controller-manager"

// Environment variables that manifests set.
const (
	nodeVariable = "NODE_NAME"
	zoneVariable = "ZONE"
)

// Bounds and defaults of the fleet's flags, the same as those of cmd/flotilla, but for the name.
const (
	defaultFleetName  = "flotilla-cloud"
	minHandoffTimeout = time.Second
	maxHandoffTimeout = 5 * time.Minute
	minReplanInterval = 10 * time.Second
	maxReplanInterval = 24 * time.Hour
	maxRebalanceDelay = time.Hour

	// noLeaderLock is the value of --leader-lock that stands for none.
	noLeaderLock = "none"
)

// fleetOptions are the options that upstream does not have.
type fleetOptions struct {
	name, member, node, zone                       string
	shards                                         int
	leaderLocks                                    []string
	replanInterval, rebalanceDelay, handoffTimeout time.Duration
	standby                                        bool
}

func newFleetOptions() *fleetOptions {
	// Without a host name the flag is required, and validate says so.
	hostname, _ := os.Hostname()
	return &fleetOptions{
		name: defaultFleetName, member: strings.ToLower(hostname),
		node: os.Getenv(nodeVariable), zone: os.Getenv(zoneVariable),
		shards: flotilla.DefaultRanges, replanInterval: flotilla.DefaultReplanInterval,
		rebalanceDelay: flotilla.DefaultRebalanceDelay, handoffTimeout: flotilla.DefaultHandoffTimeout,
	}
}

func (o *fleetOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(
		&o.name, "fleet-name", o.name,
		"The fleet that this process is a member of. All its Leases are named after it.",
	)
	fs.StringVar(
		&o.member, "member-name", o.member,
		"The name of this process in the fleet, unique among its members. In a StatefulSet the "+
			"host name, which is the default, is the pod's name.",
	)
	fs.StringVar(
		&o.node, "node-name", o.node,
		"The node that this process runs on, for 'flotilla status' to show. By default the "+
			"environment variable "+nodeVariable+".",
	)
	fs.StringVar(
		&o.zone, "zone", o.zone,
		"The zone of that node, likewise. By default the environment variable "+zoneVariable+".",
	)
	fs.IntVar(
		&o.shards, "shards", o.shards,
		fmt.Sprintf(
			"The number of equal ranges that the namespaces are cut into at first, from 1 to "+
				"%d. It counts for a fleet that has no plan yet; afterwards the plan says it.",
			shard.MaxShards,
		),
	)
	fs.StringArrayVar(
		&o.leaderLocks, "leader-lock", o.leaderLocks,
		"A foreign Lease in the leader-election namespace that the fleet must hold while any "+
			"member runs. By default it is the one of --leader-elect-resource-name: a stock "+
			"cloud controller manager leads by that, so whichever of the two runs, the other "+
			"one waits. 'none' is for a fleet beside which no stock one is ever started. May be "+
			"given more than once.",
	)
	fs.DurationVar(
		&o.replanInterval, "replan-interval", o.replanInterval,
		"How long the planner waits at least between two changes of plan that even out the "+
			"weight of the ranges. 0 for no such changes. Whichever member plans goes by its "+
			"own flag.",
	)
	fs.DurationVar(
		&o.rebalanceDelay, "rebalance-delay", o.rebalanceDelay,
		"How long a member must have been there before it is given shards, while others are "+
			"active. A member that leaves or fails is replaced at once.",
	)
	fs.DurationVar(
		&o.handoffTimeout, "handoff-timeout", o.handoffTimeout,
		"Bounds each step of a planned handoff: how long calls to the cloud may go on once a "+
			"shard is to be handed over, and how long a member that leaves waits for the next "+
			"owner of a shard to be ready. A process that is told to end needs up to twice this "+
			"and some 15 seconds more.",
	)
	fs.BoolVar(
		&o.standby, "standby", o.standby,
		"Keep the caches of those shards warm that this member would take over if their holder "+
			"failed.",
	)
}

// validate returns all faults of the fleet's options and of those of upstream's that a fleet gives
// a meaning of its own, each with the flag's name.
func (o *fleetOptions) validate(c *config.Config) error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if why := validation.IsDNS1123Label(o.name); len(why) > 0 {
		fault("--fleet-name %q: must be a DNS label: %s", o.name, strings.Join(why, "; "))
	}
	lease := election.MemberLease(o.name, o.member)
	if why := validation.IsDNS1123Subdomain(lease); o.member == "" || len(why) > 0 {
		fault(
			"--member-name %q: must make the Lease name %q a DNS subdomain: %s", o.member, lease,
			strings.Join(why, "; "),
		)
	}
	if o.shards < 1 || o.shards > shard.MaxShards {
		fault("--shards %d: must be from 1 to %d", o.shards, shard.MaxShards)
	}
	if r := o.replanInterval; r != 0 && (r < minReplanInterval || r > maxReplanInterval) {
		fault(
			"--replan-interval %v: must be 0s or from %v to %v", o.replanInterval,
			minReplanInterval, maxReplanInterval,
		)
	}
	if o.rebalanceDelay < 0 || o.rebalanceDelay > maxRebalanceDelay {
		fault("--rebalance-delay %v: must be from 0s to %v", o.rebalanceDelay, maxRebalanceDelay)
	}
	if o.handoffTimeout < minHandoffTimeout || o.handoffTimeout > maxHandoffTimeout {
		fault(
			"--handoff-timeout %v: must be from %v to %v", o.handoffTimeout, minHandoffTimeout,
			maxHandoffTimeout,
		)
	}
	for _, leaderLock := range o.leaderLocks {
		if why := validation.IsDNS1123Subdomain(leaderLock); len(why) > 0 {
			fault("--leader-lock %q: must be the name of a Lease: %s", leaderLock, strings.Join(why, "; "))
		}
		if leaderLock == noLeaderLock && len(o.leaderLocks) > 1 {
			fault("--leader-lock %s: must be the only one", noLeaderLock)
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

// options returns those of the fleet that the flags ask for.
func (o *fleetOptions) options(c *config.Config) flotilla.Options {
	leaderLocks := o.leaderLocks
	switch {
	case len(leaderLocks) == 0:
		leaderLocks = []string{c.ComponentConfig.Generic.LeaderElection.ResourceName}
	case leaderLocks[0] == noLeaderLock:
		leaderLocks = nil
	}
	return flotilla.Options{
		Fleet:     o.name,
		Namespace: c.ComponentConfig.Generic.LeaderElection.ResourceNamespace,
		Member:    o.member, Node: o.node, Zone: o.zone,
		Ranges:         o.shards,
		Version:        version.Get().GitVersion,
		LeaderLocks:    leaderLocks,
		Timing:         timing(c),
		HandoffTimeout: o.handoffTimeout,
		RebalanceDelay: flotilla.OrNever(o.rebalanceDelay),
		ReplanInterval: flotilla.OrNever(o.replanInterval),
		Standby:        o.standby,
		Registerer:     legacyregistry.Registerer(),
	}
}
