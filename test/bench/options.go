package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/test/bench/data"
	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/bench/scenario"
)

// options are the command's flags.
type options struct {
	scenarios, systems, gates, rates             string
	rounds, namespaces, deployments              int
	replicas, objects, nodes, watch, background  int
	pods, shards, names                          string
	limit, rebalanceDelay                        time.Duration
	stock, flotilla, out, dir, profile           string
	adding, empty, check, keep, verbose, balance bool
	warmUp                                       bool
}

// The words that flags allow.
var (
	gateWords = []string{"on", "off"}
	rateWords = []string{result.RateDefault, result.RateEqual, result.RateHigh}
	nameWords = []string{"balanced", "plain"}
)

// Bounds of the numbers.
const (
	mostReplicas = 16
	mostPods     = 200_000
)

func parse(args []string, output io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(output)
	f.StringVar(&o.scenarios, "scenarios", "basic", "scenarios to run, separated by commas: "+strings.Join(scenario.Names(), ", "))
	f.StringVar(&o.systems, "systems", "stock,fleet-1,fleet-2,fleet-4", "systems to compare: stock, fleet-N with N members, ceiling (replays the writes of stock, also with the limits of each fleet), ceiling-N (with the limits of N members)")
	f.StringVar(&o.gates, "gate", "on", "the API server's feature gate ShardedListAndWatch: on, off")
	f.StringVar(&o.rates, "rates", "default", "limits of the clients: default (upstream's in each process), equal (upstream's shared by the members of a fleet), high (CPU is the bound); steady and idle-cost use the first")
	f.IntVar(&o.rounds, "rounds", 3, "how often each system does the work")
	f.IntVar(&o.namespaces, "namespaces", 32, "namespaces with the work")
	f.IntVar(&o.deployments, "deployments", 64, "Deployments of basic, scale-out, rolling-update and chaos")
	f.IntVar(&o.replicas, "replicas", 6, "replicas that scale-out scales to, and that rolling-update replaces")
	f.IntVar(&o.objects, "objects", 5000, "objects that burst deletes with a namespace, and as many again with an owner; in owners, the dependents in all namespaces together")
	f.IntVar(&o.nodes, "nodes", 20, "simulated nodes")
	f.IntVar(&o.watch, "watch", 30, "seconds for which steady and idle-cost observe a system")
	f.StringVar(&o.pods, "pods", "20000", fmt.Sprintf("sizes of steady's clusters, multiples of %d", data.PodsPerNamespace))
	f.IntVar(&o.background, "background", 0, "pods in the cluster before the work, as in steady's clusters, for all scenarios but steady and idle-cost")
	f.StringVar(&o.shards, "shards", "16,32,64", "numbers of ranges of namespaces, for idle-cost")
	f.StringVar(&o.names, "names", "balanced", "names of namespaces: balanced (even in the keyspace), plain (ns-0, ns-1, ...)")
	f.DurationVar(&o.limit, "limit", 15*time.Minute, "time limit of one phase of the work")
	f.DurationVar(&o.rebalanceDelay, "rebalance-delay", time.Second, "the members' flag of that name; shorter than their default, to start sooner")
	f.StringVar(&o.stock, "stock", "", "the stock binary; default bin/kube-controller-manager")
	f.StringVar(&o.flotilla, "flotilla", "", "the fleet's binary; default bin/flotilla")
	f.StringVar(&o.out, "out", "_output/bench/bench.json", "the file for the results")
	f.BoolVar(&o.adding, "append", false, "append to the runs in the file; otherwise the file must not exist")
	f.StringVar(&o.dir, "data", "_output/bench", "where the data of steady's clusters is kept")
	f.StringVar(&o.profile, "profile", "", "a folder for profiles of CPU, heap and goroutines of all processes: at the start and while steady and idle-cost look at them, and for 10 s from the beginning of other work, which then takes at least as long; not of chaos. It costs CPU itself")
	f.BoolVar(&o.empty, "empty", true, "measure each system on an empty cluster first, where steady is among the scenarios or -background is given")
	f.BoolVar(&o.warmUp, "warm-up", true, "do the first work once more before it counts, except where nothing is done")
	f.BoolVar(&o.check, "check", false, "fail if a run lacks a figure that it should have")
	f.BoolVar(&o.keep, "keep", false, "keep the logs of all processes")
	f.BoolVar(&o.balance, "balance", false, "start fleets with flotilla's default number of ranges and let the planner balance the plan, instead of starting with the number of equal ranges at which it would arrive")
	f.BoolVar(&o.verbose, "v", false, "print how long the steps before the work take")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("arguments %q: only flags are allowed", f.Args())
	}
	if o.stock == "" {
		o.stock = "bin/kube-controller-manager"
	}
	if o.flotilla == "" {
		o.flotilla = "bin/flotilla"
	}
	return o, o.validate()
}

// validate names every wrong flag, its value and what is allowed.
func (o options) validate() error {
	var faults []error
	fault := func(name string, err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("-%s %w", name, err))
		}
	}
	words := func(name, value string, allowed []string) { _, err := oneOf(value, allowed); fault(name, err) }
	words("scenarios", o.scenarios, scenario.Names())
	words("gate", o.gates, gateWords)
	words("rates", o.rates, rateWords)
	words("names", o.names, nameWords)
	_, err := parseSystems(o.systems)
	fault("systems", err)
	_, err = numbers(o.pods, data.PodsPerNamespace, mostPods, data.PodsPerNamespace)
	fault("pods", err)
	_, err = numbers(o.shards, 1, 1019, 1)
	fault("shards", err)
	leastNamespaces := 1
	if slices.Contains(strings.Split(o.scenarios, ","), scenario.Burst) {
		leastNamespaces = 2 // one is deleted, in the other an owner is
	}
	for _, n := range []struct {
		name             string
		value, low, high int
	}{
		{"rounds", o.rounds, 1, 100}, {"namespaces", o.namespaces, leastNamespaces, 5000}, {"deployments", o.deployments, 1, 100_000}, {"replicas", o.replicas, 2, 1000},
		{"objects", o.objects, 1, 200_000}, {"nodes", o.nodes, 1, 1000}, {"watch", o.watch, 1, 3600},
	} {
		if n.value < n.low || n.value > n.high {
			fault(n.name, fmt.Errorf("%d: must be from %d to %d", n.value, n.low, n.high))
		}
	}
	if o.background < 0 || o.background > mostPods || o.background%data.PodsPerNamespace != 0 {
		fault("background", fmt.Errorf("%d: must be a multiple of %d from 0 to %d", o.background, data.PodsPerNamespace, mostPods))
	}
	if o.limit < time.Second {
		fault("limit", fmt.Errorf("%v: must be at least 1s", o.limit))
	}
	if o.rebalanceDelay < 0 {
		fault("rebalance-delay", fmt.Errorf("%v: must be 0 or more", o.rebalanceDelay))
	}
	for name, path := range map[string]string{"stock": o.stock, "flotilla": o.flotilla} {
		if info, err := os.Stat(path); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			fault(name, fmt.Errorf("%q: must be an executable file", path))
		}
	}
	if _, err := os.Stat(o.out); err == nil && !o.adding {
		fault("out", fmt.Errorf("%q: exists; give another name, or -append", o.out))
	}
	if filepath.Ext(o.out) != ".json" {
		fault("out", fmt.Errorf("%q: must end in .json", o.out))
	}
	if len(faults) == 0 && len(o.jobs()) == 0 {
		fault("systems", fmt.Errorf("%q: none of them runs any of %s at %s", o.systems, o.scenarios, o.rates))
	}
	return errors.Join(faults...)
}

// oneOf returns the words of a list. Each must be allowed and occur once.
func oneOf(list string, allowed []string) ([]string, error) {
	words := strings.Split(list, ",")
	for i, word := range words {
		if !slices.Contains(allowed, word) {
			return nil, fmt.Errorf("%q: %q must be one of %s", list, word, strings.Join(allowed, ", "))
		}
		if slices.Contains(words[:i], word) {
			return nil, fmt.Errorf("%q: %q must not occur twice", list, word)
		}
	}
	return words, nil
}

// numbers returns the numbers of a list, each within the bounds and a multiple of step.
func numbers(list string, low, high, step int) ([]int, error) {
	var all []int
	for word := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < low || n > high || n%step != 0 || slices.Contains(all, n) {
			return nil, fmt.Errorf("%q: %q must be a multiple of %d from %d to %d, and occur once", list, word, step, low, high)
		}
		all = append(all, n)
	}
	return all, nil
}

// parseSystems returns the systems of a list, without gate and rate. A ceiling without a number
// means one for each size of the list's fleets, and for stock.
func parseSystems(list string) ([]result.System, error) {
	var all []result.System
	everySize := false
	for word := range strings.SplitSeq(list, ",") {
		s, err := parseSystem(word)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", list, err)
		}
		if slices.Contains(all, s) {
			return nil, fmt.Errorf("%q: %q must not occur twice", list, word)
		}
		everySize = everySize || word == result.Ceiling
		all = append(all, s)
	}
	if !everySize {
		return all, nil
	}
	for _, s := range all {
		if size := (result.System{Kind: result.Ceiling, Replicas: s.Replicas}); !slices.Contains(all, size) {
			all = append(all, size)
		}
	}
	return all, nil
}

// parseSystem returns the system of a word; those without a number have one replica.
func parseSystem(word string) (result.System, error) {
	if word == result.Stock || word == result.Ceiling {
		return result.System{Kind: word, Replicas: 1}, nil
	}
	kind, count, _ := strings.Cut(word, "-")
	n, err := strconv.Atoi(count)
	if kind != result.Fleet && kind != result.Ceiling || err != nil || n < 1 || n > mostReplicas {
		return result.System{}, fmt.Errorf("%q must be %s, %s-N, %s or %s-N with N from 1 to %d",
			word, result.Stock, result.Fleet, result.Ceiling, result.Ceiling, mostReplicas)
	}
	return result.System{Kind: kind, Replicas: n}, nil
}
