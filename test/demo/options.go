package main

import (
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election"
)

const (
	fleetName = "flotilla"

	// The defaults of 10 s would make a demo long.
	rebalanceDelay = 3 * time.Second
)

// timing is shorter than the default of 15 s, 10 s and 2 s, for the same reason. It is not minimal,
// because a busy machine may keep a replica from renewing for seconds.
var timing = election.Timing{LeaseDuration: 10 * time.Second, RenewDeadline: 7 * time.Second, RetryPeriod: time.Second}

// options are the demo's flags.
type options struct {
	once, keep       bool
	nodes, replicas  int
	shards           int
	shardedListWatch bool
}

// parseFlags returns the options, or an error that names the wrong flag. It prints usage to out.
func parseFlags(args []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.BoolVar(&o.once, "once", false, "end after the last step")
	flags.BoolVar(&o.keep, "keep", false, "keep the working directory with all logs")
	flags.IntVar(&o.nodes, "nodes", 10, "number of simulated nodes, 1 to 100")
	flags.IntVar(&o.replicas, "replicas", 3, "number of replicas, 2 to 9; one of them is killed")
	flags.IntVar(&o.shards, "shards", 16, "number of ranges of namespaces")
	flags.BoolVar(&o.shardedListWatch, "sharded-list-watch", true,
		"turn on the API server's alpha feature ShardedListAndWatch, so that it filters by range itself")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if o.nodes < 1 || o.nodes > 100 {
		return o, fmt.Errorf("-nodes is %d, must be from 1 to 100", o.nodes)
	}
	if o.replicas < 2 || o.replicas > 9 {
		return o, fmt.Errorf("-replicas is %d, must be from 2 to 9", o.replicas)
	}
	if _, err := catalogue.DefaultPlan(o.shards); err != nil {
		return o, fmt.Errorf("-shards: %w", err)
	}
	return o, nil
}

// members returns the replicas' names, as in a StatefulSet.
func (o options) members() []string {
	var names []string
	for i := range o.replicas {
		names = append(names, fmt.Sprintf("flotilla-%d", i))
	}
	return names
}
