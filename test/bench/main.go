// Command bench compares the stock kube-controller-manager with fleets of members: each does the
// same work in turn, with a new etcd and API server for every run. It measures and writes JSON;
// test/bench/report makes tables of it.
//
//	make bench ARGS="-scenarios basic -rates default,high -out _output/bench/basic.json"
//
// The file is written after every run, so that an interrupted bench keeps its results. The order is
// scenario, size, rate, round, system. The first system changes from round to round, so that slow
// changes of the machine affect all alike.
//
// Before a run measures anything, all processes must be healthy, owners must hold every shard, the
// plan must be even, and the processes must have been quiet for four seconds. From then on the plan
// does not change, except in arrivals. It is even by construction: the namespaces' names are evenly
// spread in the keyspace, and a fleet starts with four equal ranges a member, which its planner
// would arrive at. With -balance and -names plain the planner has to arrive at them: flotilla plan
// rebalance runs until there is nothing left to do. The results have each member's namespaces.
//
// Every process reaches the API server through a proxy that counts bytes and has its own address,
// by which the audit log tells its watches and its writes of Leases. The proxies run in this
// process and cost all systems the same CPU per byte.
//
// The ceiling (-systems ceiling) is the load generator of package ceiling, for basic, scale-out and
// rolling-update. Before its first run at the rates default (equal is the same for one process) and
// high, stock does the work once on its own control plane whose audit log has the objects. Each
// replay has a new control plane with the same nodes and scheduler, the namespaces, and the
// Deployments as they are created. Controllers' writes from before the work are replayed before the
// clock starts, and then the work, phase by phase, with the limits of all processes of a system
// together. Later writes of users are left out: the controllers' writes carry what users wanted,
// and do not depend on them.
//
// Exit status: 0 if every run gave figures, 1 if one failed (the others were still made), 2 for
// wrong usage.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/flotilla-kube/flotilla/test/command"
)

func main() {
	os.Exit(command.Main("bench", parse, func(ctx context.Context, o options) int {
		if err := benchmark(ctx, o); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			return command.Failed
		}
		return 0
	}))
}
