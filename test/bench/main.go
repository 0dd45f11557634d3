// Command bench compares the stock kube-controller-manager with fleets of members: the same work on
// each in turn, on an etcd and an API server that are started afresh for every run. It measures and
// writes JSON; test/bench/report makes tables of it.
//
//	make bench ARGS="-scenarios basic -rates default,high -out _output/bench/basic.json"
//
// The file is written after every run, so that an interrupted bench keeps what it has. Order:
// scenario, size, rate, round, system; which system is first changes from round to round, so that
// what changes slowly on the machine hits all alike.
//
// What a run waits for before anything is measured: all processes are healthy, every shard is held
// by its owner, the plan is even, and the processes have been quiet for four seconds. The plan then
// stands still. Even it is by names and numbers: the namespaces' names lie evenly in the keyspace,
// and a fleet starts with four equal ranges a member, which its planner would come to. With
// -balance and -names plain the planner has to come to them: flotilla plan rebalance is run until
// nothing is worth doing. Each member's namespaces are in the results.
//
// Every process reaches the API server through a proxy that counts bytes and gives it an address of
// its own, by which the audit log tells its watches and its writes of Leases. The proxies run in
// this process and cost all systems the same CPU per byte.
//
// The ceiling (-systems ceiling) is the load generator of package ceiling, for basic, scale-out and
// rolling-update. Before its first run at the rates default (equal is the same for one process) and
// high, stock does the work once on a control plane of its own whose audit log has the objects.
// Each replay has a fresh control plane with the same nodes and scheduler, the namespaces and the
// Deployments as they are created; what controllers wrote before the work is replayed before the
// clock starts, and then the work, phase by phase, with the limits of all processes of a system
// together. Later writes of users are left out: the controllers' writes carry what users wanted,
// and need nothing of them.
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
