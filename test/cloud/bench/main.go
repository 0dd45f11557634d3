// Bench measures how long a cloud controller manager takes to give load balancers to many Services.
// It compares upstream's one leader with fleets of several members. All get the same flags, in a
// cloud that limits each client or all together.
//
//	go run ./test/cloud/bench -services 500 -systems stock,fleet-2,fleet-4 -limits client,global
//
// It starts the managers, creates the Services, and measures from the first creation until the last
// Service has an address. After each run, an endpoint of the right Service must answer at each load
// balancer, and the judge of the cloud's log must find nothing. Bench fails otherwise, and if a run
// misses a goal that a flag sets.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/flotilla-kube/flotilla/test/cloud"
	"github.com/flotilla-kube/flotilla/test/cloud/provider"
	"github.com/flotilla-kube/flotilla/test/cloud/sky"
	"github.com/flotilla-kube/flotilla/test/command"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

func main() {
	provider.MainIfAsked()
	os.Exit(command.Main("bench", parse, run))
}

const (
	stock       = "stock"
	fleetPrefix = "fleet-"

	perClient = "client"
	global    = "global"
)

type options struct {
	services, concurrent int
	rate                 float64
	seed                 uint64
	systems, limits      []string
	faster, slower       float64
	within               time.Duration
}

func parse(args []string, output io.Writer) (options, error) {
	var o options
	var systems, limits string
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(output)
	fs.IntVar(&o.services, "services", 500, "how many Services, each in a namespace of its own")
	fs.IntVar(&o.concurrent, "concurrent", 5, "--concurrent-service-syncs of all managers")
	fs.Uint64Var(&o.seed, "seed", 1, "the seed for the names of namespaces")
	fs.Float64Var(
		&o.rate, "rate", 10,
		"requests per second that the cloud answers, per client or in all; a load balancer "+
			"takes two",
	)
	fs.StringVar(&systems, "systems", "stock,fleet-2,fleet-4", "what to measure")
	fs.StringVar(&limits, "limits", "client,global", "which limits the cloud has")
	fs.Float64Var(
		&o.faster, "faster", 3.5,
		"how many times as fast as stock a fleet of 4 must be, if the cloud limits "+
			"each client; 0 for no such goal",
	)
	fs.Float64Var(
		&o.slower, "slower", 1.05,
		"how many times as long as stock a fleet may take, if the cloud limits all clients "+
			"together; 0 for no such goal",
	)
	fs.DurationVar(&o.within, "within", 10*time.Minute, "how long a run may take")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	o.systems, o.limits = strings.Split(systems, ","), strings.Split(limits, ",")
	for _, s := range o.systems {
		if _, err := members(s); err != nil {
			return o, err
		}
	}
	for _, l := range o.limits {
		if !slices.Contains([]string{perClient, global}, l) {
			return o, fmt.Errorf("-limits: %q is neither %s nor %s", l, perClient, global)
		}
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected arguments %q", fs.Args())
	}
	return o, nil
}

// members returns how many members a system has, or 0 for the stock one.
func members(system string) (int, error) {
	if system == stock {
		return 0, nil
	}
	number, is := strings.CutPrefix(system, fleetPrefix)
	count, err := strconv.Atoi(number)
	if !is || err != nil || count < 1 {
		return 0, fmt.Errorf("-systems: %q is neither %s nor %sN", system, stock, fleetPrefix)
	}
	return count, nil
}

// outcome is the outcome of one run.
type outcome struct {
	limit, system string
	took          time.Duration
	calls         map[string]int
	limited       int
}

func run(ctx context.Context, o options) int {
	var outcomes []outcome
	for _, limit := range o.limits {
		for _, system := range o.systems {
			result, err := measure(ctx, o, limit, system)
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s, limit %s: %v\n", system, limit, err)
				if ctx.Err() != nil {
					return command.Interrupted
				}
				return command.Failed
			}
			fmt.Printf(
				"%s, limit %s: %.1f s; requests: %v; above the limit: %d\n", system, limit,
				result.took.Seconds(), result.calls, result.limited,
			)
			outcomes = append(outcomes, result)
		}
	}
	if err := report(os.Stdout, o, outcomes); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return command.Failed
	}
	return 0
}

// measure does one run on a new control plane and cloud.
func measure(ctx context.Context, o options, limit, system string) (result outcome, err error) {
	plane, err := controlplane.Start(ctx, controlplane.Options{})
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, plane.Stop()) }()
	skyOptions := sky.Options{
		ReadLatency: 10 * time.Millisecond, WriteLatency: 100 * time.Millisecond,
	}
	limited := sky.Limit{PerSecond: o.rate, Burst: int(o.rate)}
	if limit == perClient {
		skyOptions.PerClient = limited
	} else {
		skyOptions.Global = limited
	}
	w, err := cloud.NewCluster(plane, skyOptions)
	if err != nil {
		return result, err
	}
	defer w.Close()
	if err := w.AddNodes(ctx, 2); err != nil {
		return result, err
	}
	managers, err := start(ctx, o, w, system)
	if err != nil {
		return result, err
	}
	defer func() {
		for _, m := range managers {
			err = errors.Join(err, m.Stop(context.WithoutCancel(ctx)))
		}
	}()
	names := cloud.Names("bench", o.services, o.seed)
	if err := w.AddNamespaces(ctx, names); err != nil {
		return result, err
	}
	callsBefore, limitedBefore := len(w.Sky.Calls()), w.Sky.Limited()
	began := time.Now()
	if err := w.AddServices(ctx, names); err != nil {
		return result, err
	}
	if _, err := harness.Await(
		ctx, o.within, "all Services have an address", w.Addressed(names),
	); err != nil {
		return result, err
	}
	result = outcome{
		limit: limit, system: system, took: time.Since(began), calls: map[string]int{},
		limited: w.Sky.Limited() - limitedBefore,
	}
	for _, c := range w.Sky.Calls()[callsBefore:] {
		result.calls[c.Client]++
	}
	return result, check(ctx, w, names)
}

// check returns an error unless all load balancers answer and the judge finds nothing.
func check(ctx context.Context, w *cloud.Cluster, names []cloud.Name) error {
	if err := w.Serve(ctx, names); err != nil {
		return err
	}
	if err := w.Answered(ctx, names); err != nil {
		return err
	}
	found, err := w.Judge(ctx)
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("the judge found: %s", strings.Join(found, "\n"))
	}
	return err
}

// start starts the managers of a system and waits until they run.
func start(
	ctx context.Context, o options, w *cloud.Cluster, system string,
) ([]*harness.Manager, error) {
	count, err := members(system)
	if err != nil {
		return nil, err
	}
	// Routes are rarely reconciled, because that costs requests. Clients of the API server are not
	// what this measures, so their limits are high.
	flags := []string{
		fmt.Sprintf("--concurrent-service-syncs=%d", o.concurrent),
		"--route-reconciliation-period=5m", "--kube-api-qps=200", "--kube-api-burst=400",
	}
	var managers []*harness.Manager
	for i := range max(1, count) {
		spec := cloud.Spec{
			Name: fmt.Sprintf("%s-%d", system, i), Kind: provider.Fleet,
			Config: provider.Config{Fenced: true}, Flags: flags,
		}
		if count == 0 {
			spec.Kind, spec.Config = provider.Stock, provider.Config{}
		}
		m, err := w.Start(spec)
		if err != nil {
			return managers, err
		}
		managers = append(managers, m)
	}
	for _, m := range managers {
		ready := m.Ready
		if count == 0 {
			ready = m.Healthy
		}
		if _, err := harness.Await(ctx, harness.Patience, m.Name()+" is ready", ready); err != nil {
			return managers, err
		}
	}
	if _, err := harness.Await(
		ctx, harness.Patience, "the nodes are initialized", w.NodesInitialized,
	); err != nil || count == 0 {
		return managers, err
	}
	_, err = harness.Await(ctx, harness.Patience, "every member has its ranges", w.Settled(count))
	return managers, err
}

// report prints a table, and returns an error that names the missed goals.
func report(w io.Writer, o options, outcomes []outcome) error {
	var missed []error
	base := map[string]time.Duration{}
	for _, r := range outcomes {
		if r.system == stock {
			base[r.limit] = r.took
		}
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "\n%d SERVICES\tLIMIT\tTIME\tTIMES AS FAST\t\n", o.services)
	for _, r := range outcomes {
		ratio := base[r.limit].Seconds() / r.took.Seconds()
		fmt.Fprintf(
			t, "%s\t%g/s, %s\t%.1f s\t%.2f\t\n", r.system, o.rate, r.limit, r.took.Seconds(), ratio,
		)
		switch {
		case base[r.limit] == 0:
		case r.limit == perClient && r.system == fleetPrefix+"4" && ratio < o.faster:
			missed = append(
				missed,
				fmt.Errorf(
					"%s is %.2f times as fast as stock, want %.2f", r.system, ratio, o.faster,
				),
			)
		case r.limit == global && o.slower > 0 && 1/ratio > o.slower:
			missed = append(
				missed,
				fmt.Errorf(
					"%s takes %.2f times as long as stock, want %.2f at most", r.system, 1/ratio,
					o.slower,
				),
			)
		}
	}
	return errors.Join(errors.Join(missed...), t.Flush())
}
