package flags

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// Bounds of the flags.
const (
	minReplanInterval = 10 * time.Second
	maxReplanInterval = 24 * time.Hour
	maxRebalanceDelay = time.Hour
	minHandoffTimeout = time.Second
	maxHandoffTimeout = 5 * time.Minute
)

// Environment variables that manifests set. An earlier version, which has no such flags, ignores
// them.
const (
	NodeVariable = "NODE_NAME"
	ZoneVariable = "ZONE"
)

// Common are the values of the flags.
type Common struct {
	// Name of the fleet: the first part of the names of all its Leases, a DNS label.
	Name string
	// Member is this process's name in the fleet, a DNS subdomain. Default: the host name, which in
	// a pod is the pod's.
	Member string
	// Node and Zone say where this process runs, for people; empty if unknown.
	Node, Zone string
	// Shards is the number of equal ranges of namespaces in the fleet's first plan, from 1.
	Shards int
	// ReplanInterval is the minimum time between changes of plan because of the namespaces'
	// weights; 0 is never, else 10 s to 24 h.
	ReplanInterval time.Duration
	// RebalanceDelay is how long a member must have been there before it gets shards while others
	// are active; 0 to one hour.
	RebalanceDelay time.Duration
	// HandoffTimeout bounds the steps of a handoff; 1 s to 5 minutes.
	HandoffTimeout time.Duration
	// Standby keeps caches warm for takeovers.
	Standby bool
}

// Defaults returns the defaults, with the name of the fleet.
func Defaults(name string) Common {
	// Without a host name the flag is required, and Validate says so.
	hostname, _ := os.Hostname()
	return Common{
		Name: name, Member: strings.ToLower(hostname),
		Node: os.Getenv(NodeVariable), Zone: os.Getenv(ZoneVariable),
		Shards: flotilla.DefaultRanges, ReplanInterval: flotilla.DefaultReplanInterval,
		RebalanceDelay: flotilla.DefaultRebalanceDelay, HandoffTimeout: flotilla.DefaultHandoffTimeout,
	}
}

// Command is what differs between the commands with these flags.
type Command struct {
	// MaxShards is the maximum of --shards.
	MaxShards int
	// Planned is set if 'flotilla plan' knows the controllers.
	Planned bool
	// MayGoOn is the text for what --handoff-timeout bounds once a shard is to be handed over, "how
	// long ... may go on"; by default its controllers, with what they write.
	MayGoOn string
}

// AddFlags adds the flags.
func (c *Common) AddFlags(fs *pflag.FlagSet, command Command) {
	changed, left := "", "as it is"
	if command.Planned {
		changed, left = ", and is changed with 'flotilla plan'", "to 'flotilla plan'"
	}
	goOn := cmp.Or(command.MayGoOn, "how long a shard's controllers may go on writing once they have been asked to stop")
	fs.StringVar(
		&c.Name, "fleet-name", c.Name,
		"The fleet that this process is a member of. All its Leases are named after it.",
	)
	fs.StringVar(
		&c.Member, "member-name", c.Member,
		"The name of this process in the fleet, unique among its members. In a StatefulSet the host "+
			"name, which is the default, is the pod's name.",
	)
	fs.StringVar(
		&c.Node, "node-name", c.Node,
		"The node that this process runs on, for 'flotilla status' to show. By default the "+
			"environment variable "+NodeVariable+".",
	)
	fs.StringVar(
		&c.Zone, "zone", c.Zone,
		"The zone of that node, for the same purpose. By default the environment variable "+ZoneVariable+".",
	)
	fs.IntVar(
		&c.Shards, "shards", c.Shards,
		fmt.Sprintf(
			"The number of equal ranges that the namespaces are cut into at first, from 1 to %d. It "+
				"counts for a fleet that has no plan yet; afterwards the plan says it%s.",
			command.MaxShards, changed,
		),
	)
	fs.DurationVar(
		&c.ReplanInterval, "replan-interval", c.ReplanInterval,
		"How long the planner waits at least between two changes of plan that even out the weight of "+
			"the members, unless that is very uneven. What was moved for that rests for twelve times "+
			"as long. 0 to leave the plan "+left+". Whichever member plans goes by its own flag.",
	)
	fs.DurationVar(
		&c.RebalanceDelay, "rebalance-delay", c.RebalanceDelay,
		"How long a member must have been there before it is given shards, while others are active. "+
			"A member that leaves or fails is replaced at once.",
	)
	fs.DurationVar(
		&c.HandoffTimeout, "handoff-timeout", c.HandoffTimeout,
		"Bounds each step of a planned handoff: "+goOn+", and how long a member that leaves waits for "+
			"the next owner of a shard to be ready. A process that is told to end needs up to twice this and some 15 "+
			"seconds more.",
	)
	fs.BoolVar(
		&c.Standby, "standby", c.Standby,
		"Keep the caches of those shards warm that this member would take over if their holder "+
			"failed. A takeover then does not list whole objects; every object is cached twice in the "+
			"fleet.",
	)
}

// Validate returns all faults, each with the flag's name.
func (c *Common) Validate(command Command) []error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	why := validation.IsDNS1123Label(c.Name)
	if len(why) > 0 || len(c.Name) > fleet.MaxFleetName {
		fault("--fleet-name %q: must be a DNS label of at most %d characters: %s",
			c.Name, fleet.MaxFleetName, strings.Join(why, "; "))
	}
	lease := leaserecord.MemberLease(c.Name, c.Member)
	why = validation.IsDNS1123Subdomain(lease)
	if c.Member == "" || len(c.Member) > heartbeat.MaxMemberName || len(why) > 0 {
		fault("--member-name %q: must have at most %d characters and make the Lease name %q a DNS subdomain: %s",
			c.Member, heartbeat.MaxMemberName, lease, strings.Join(why, "; "))
	}
	if why := validation.IsDNS1123Subdomain(c.Node); c.Node != "" && len(why) > 0 {
		fault("--node-name (or %s) %q: must be the name of a node: %s",
			NodeVariable, c.Node, strings.Join(why, "; "))
	}
	if why := validation.IsValidLabelValue(c.Zone); len(why) > 0 {
		fault("--zone (or %s) %q: must be the value of a label: %s",
			ZoneVariable, c.Zone, strings.Join(why, "; "))
	}
	if c.Shards < 1 || c.Shards > command.MaxShards {
		fault("--shards %d: must be from 1 to %d", c.Shards, command.MaxShards)
	}
	if r := c.ReplanInterval; r != 0 && (r < minReplanInterval || r > maxReplanInterval) {
		fault("--replan-interval %v: must be 0s or from %v to %v",
			r, minReplanInterval, maxReplanInterval)
	}
	if c.RebalanceDelay < 0 || c.RebalanceDelay > maxRebalanceDelay {
		fault("--rebalance-delay %v: must be from 0s to %v", c.RebalanceDelay, maxRebalanceDelay)
	}
	if c.HandoffTimeout < minHandoffTimeout || c.HandoffTimeout > maxHandoffTimeout {
		fault("--handoff-timeout %v: must be from %v to %v",
			c.HandoffTimeout, minHandoffTimeout, maxHandoffTimeout)
	}
	return errs
}
