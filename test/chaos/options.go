package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election"
)

// target is the system under test.
type target string

const (
	fleetTarget target = "fleet"
	stockTarget target = "stock"
)

const (
	fleetName = "flotilla"
	stockName = "kube-controller-manager"

	// rebalanceDelay is shorter than the default of 10 s, which would delay the recovery from every
	// fault.
	rebalanceDelay = 3 * time.Second
)

// options are the command's flags.
type options struct {
	seed     uint64
	rounds   int
	minutes  float64
	faults   []string
	target   target
	replicas int
	shards   int
	nodes    int
	load     float64
	least    int
	margin   time.Duration
	timing   election.Timing
	binDir   string
	dir      string
	keep     bool
	failFast bool
	shard    bool
	bounds   bool
	earlier  string
	extra    []string
}

// parseFlags returns the options, or an error that names the wrong flag. It prints usage to out.
func parseFlags(args []string, out io.Writer) (options, error) {
	var o options
	var faults, extra, kind string
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Uint64Var(&o.seed, "seed", 0, "seed of the schedule and of all random choices; 0 takes one from the clock and prints it")
	flags.IntVar(&o.rounds, "rounds", 0, "number of faults, instead of -minutes; 0 for each of the list at least once")
	flags.Float64Var(&o.minutes, "minutes", 0, "once each fault of the list has come, continue with random ones for this many minutes")
	flags.BoolVar(&o.failFast, "fail-fast", false, "stop at the first fault whose checks fail; default is to continue once the fleet is whole again")
	flags.StringVar(&faults, "faults", "all", "comma-separated names of faults, or 'all', or 'cheap'; names: "+strings.Join(faultNames(anyFault), ", "))
	flags.StringVar(&kind, "target", string(fleetTarget), "'fleet', or 'stock' for two replicas of kube-controller-manager")
	flags.IntVar(&o.replicas, "replicas", 3, "number of replicas, 2 to 9")
	flags.IntVar(&o.shards, "shards", 16, "number of ranges of namespaces; each gets a canary")
	flags.IntVar(&o.nodes, "nodes", 4, "number of simulated nodes")
	flags.Float64Var(&o.load, "load", 4, "changes of the workload per second, each of which causes several writes by controllers")
	flags.IntVar(&o.least, "least-rate", 50, "writes in the median second, not counting Leases and Events, below which the run fails because it proves little")
	flags.DurationVar(&o.margin, "margin", 15*time.Second, "time beyond the lease duration after which an unowned shard is a failure")
	flags.DurationVar(&o.timing.LeaseDuration, "lease-duration", 6*time.Second, "--leader-elect-lease-duration of all replicas")
	flags.DurationVar(&o.timing.RenewDeadline, "renew-deadline", 4*time.Second, "--leader-elect-renew-deadline of all replicas")
	flags.DurationVar(&o.timing.RetryPeriod, "retry-period", time.Second, "--leader-elect-retry-period of all replicas")
	flags.StringVar(&o.binDir, "bin", "", "directory of the binaries; default bin/ of the repository")
	flags.StringVar(&o.dir, "dir", "", "working directory, empty or missing; default a new one")
	flags.BoolVar(&o.keep, "keep", false, "always keep the working directory with all logs")
	flags.BoolVar(&o.shard, "sharded-list-watch", true, "turn on the API server's alpha feature ShardedListAndWatch")
	flags.BoolVar(&o.bounds, "bounds", true, "fail if handoffs, takeovers or the leader lock take longer than promised, beyond what this machine's speed explains")
	flags.StringVar(&o.earlier, "earlier", "", "binary of another version for the fault versions; default earlier/flotilla in the directory of the binaries")
	flags.StringVar(&extra, "replica-flags", "", "more flags for every replica, separated by spaces")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	o.target, o.extra = target(kind), strings.Fields(extra)
	if o.target == stockTarget && !given(flags, "replicas") {
		o.replicas = 2
	}
	if err := o.validate(); err != nil {
		return o, err
	}
	var err error
	o.faults, err = chooseFaults(faults, o.target)
	return o, err
}

func given(flags *flag.FlagSet, name string) bool {
	found := false
	flags.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

func (o options) validate() error {
	if o.target != fleetTarget && o.target != stockTarget {
		return fmt.Errorf("-target is %q, must be %q or %q", o.target, fleetTarget, stockTarget)
	}
	if o.replicas < 2 || o.replicas > 9 {
		return fmt.Errorf("-replicas is %d, must be from 2 to 9", o.replicas)
	}
	if o.nodes < 1 || o.nodes > 100 {
		return fmt.Errorf("-nodes is %d, must be from 1 to 100", o.nodes)
	}
	if o.load <= 0 || o.load > 1000 {
		return fmt.Errorf("-load is %v, must be more than 0 and at most 1000", o.load)
	}
	if o.rounds > 0 && o.minutes > 0 {
		return errors.New("-rounds and -minutes exclude each other")
	}
	if o.rounds < 0 || o.minutes < 0 || o.least < 0 || o.margin <= 0 {
		return errors.New("-rounds, -minutes and -least-rate must not be negative, -margin must be positive")
	}
	if err := o.timing.Validate(); err != nil {
		return err
	}
	_, err := catalogue.DefaultPlan(o.shards)
	if err != nil {
		return fmt.Errorf("-shards: %w", err)
	}
	return nil
}

// chooseFaults returns the names in a list. Each must be known and possible with the target.
func chooseFaults(list string, t target) ([]string, error) {
	possible := faultNames(func(k faultKind) bool { return t == fleetTarget || k.stock })
	switch list {
	case "all":
		return faultNames(func(k faultKind) bool { return !k.named && (t == fleetTarget || k.stock) }), nil
	case "cheap":
		return faultNames(func(k faultKind) bool { return k.cheap && (t == fleetTarget || k.stock) }), nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if !slices.Contains(possible, name) {
			return nil, fmt.Errorf("-faults: %q is not one of %s", name, strings.Join(possible, ", "))
		}
	}
	return names, nil
}

// members returns the replicas' names, as in a StatefulSet.
func (o options) members() []string {
	var names []string
	for i := range o.replicas {
		names = append(names, memberName(i))
	}
	return names
}

func memberName(i int) string { return fmt.Sprintf("flotilla-%d", i) }

// leaderLock returns the name of the Lease that the fleet must hold: the stock controller
// manager's, unless the replicas' flags say otherwise. It is empty if there is none.
func (o options) leaderLock() string {
	if o.target == stockTarget {
		return ""
	}
	leaderLock := stockName
	for _, arg := range o.extra {
		switch name, value, _ := strings.Cut(arg, "="); {
		case name == "--leader-lock" && value == "none", name == "--leader-elect" && value == "false":
			leaderLock = ""
		case name == "--leader-lock", name == "--leader-elect-resource-name":
			leaderLock = value
		}
	}
	return leaderLock
}
