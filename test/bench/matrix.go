package main

import (
	"slices"

	"github.com/flotilla-kube/flotilla/test/bench/data"
	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/bench/scenario"
)

// job is one run to make.
type job struct {
	scenario string
	params   map[string]int
	system   result.System
	round    int
	// recorded is set if the run is for a recording, and not measured.
	recorded bool
}

// jobs returns the runs for the options, in order.
func (o options) jobs() []job {
	var all []job
	names, _ := oneOf(o.scenarios, scenario.Names())
	rates, _ := oneOf(o.rates, rateWords)
	for _, name := range names {
		some := rates
		if quietScenario(name) {
			some = rates[:1]
		}
		for _, params := range o.sizes(name) {
			for _, rate := range some {
				for round := range o.rounds {
					all = append(all, o.round(name, params, rate, round+1)...)
				}
			}
		}
	}
	return all
}

// quietScenario reports whether a scenario has no work.
func quietScenario(name string) bool { return name == scenario.Steady || name == scenario.IdleCost }

// round returns the runs of one round; every second round is in the opposite order.
func (o options) round(name string, params map[string]int, rate string, round int) []job {
	var all []job
	systems, _ := parseSystems(o.systems)
	gates, _ := oneOf(o.gates, gateWords)
	for _, s := range systems {
		if !fits(name, rate, s) {
			continue
		}
		some := gates
		if s.Kind == result.Ceiling {
			some = gates[:1] // nobody requests shards
		}
		for _, gate := range some {
			s.Gate, s.Rate = gate == "on", rate
			all = append(all, job{scenario: name, params: params, system: s, round: round})
		}
	}
	if round%2 == 0 {
		slices.Reverse(all)
	}
	return all
}

// fits reports whether a system does a scenario at a rate.
func fits(name, rate string, s result.System) bool {
	switch s.Kind {
	case result.Stock:
		return name != scenario.IdleCost // only a fleet has ranges
	case result.Ceiling:
		work, err := scenario.Named(name)
		// More members have higher limits only at the default rate.
		return err == nil && work.Users != nil && (s.Replicas == 1 || rate == result.RateDefault)
	default:
		return name != scenario.Chaos || s.Replicas > 1 // nobody takes over from the only member
	}
}

// sizes returns the sizes in which a scenario is run.
func (o options) sizes(name string) []map[string]int {
	var all []map[string]int
	switch name {
	case scenario.Steady:
		pods, _ := numbers(o.pods, data.PodsPerNamespace, mostPods, data.PodsPerNamespace)
		for _, n := range pods {
			all = append(all, map[string]int{scenario.Pods: n, scenario.Namespaces: n / data.PodsPerNamespace, scenario.Seconds: o.watch})
		}
	case scenario.IdleCost:
		shards, _ := numbers(o.shards, 1, 1019, 1)
		for _, n := range shards {
			all = append(all, map[string]int{scenario.Shards: n, scenario.Seconds: o.watch})
		}
	case scenario.Burst, scenario.Owners:
		all = []map[string]int{{scenario.Namespaces: o.namespaces, scenario.Objects: o.objects}}
	case scenario.Arrivals:
		all = []map[string]int{{scenario.Namespaces: o.namespaces}}
	case scenario.ScaleOut, scenario.RollingUpdate:
		all = []map[string]int{{scenario.Namespaces: o.namespaces, scenario.Deployments: o.deployments, scenario.Replicas: o.replicas}}
	default:
		all = []map[string]int{{scenario.Namespaces: o.namespaces, scenario.Deployments: o.deployments}}
	}
	if o.background > 0 && !quietScenario(name) {
		all[0][scenario.Pods] = o.background
	}
	return all
}
