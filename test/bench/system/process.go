package system

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/flotilla-kube/flotilla/test/bench/measure"
	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// DefaultQPS and DefaultBurst are upstream's defaults of --kube-api-qps and --kube-api-burst, for
// each controller.
const DefaultQPS, DefaultBurst = 20, 30

// Limits that leave CPU as the only bound.
const highQPS, highBurst = 1000, 2000

// Process is one controller manager and its path to the API server.
type Process struct {
	Name    string
	process *harness.Manager
	proxy   *measure.Proxy
	// source is the address that the API server sees.
	source string
	// last is the last sample before it was killed; nil if nobody has killed it.
	last *Sample
}

// start starts the i-th process.
func (r *Running) start(proxies context.Context, name string, i int) (*Process, error) {
	upstream, err := r.upstream()
	if err != nil {
		return nil, err
	}
	p := &Process{Name: name, source: fmt.Sprintf("127.0.1.%d", i+1)}
	if p.proxy, err = measure.NewProxy(upstream, p.source); err != nil {
		return nil, err
	}
	r.done.Go(func() { _ = p.proxy.Run(proxies) })
	spec := harness.Spec{Name: name, Binary: r.config.Stock, Flags: r.flags(name), Kubeconfig: filepath.Join(r.config.Plane.Dir(), "proxied-"+name+".yaml")}
	if r.config.fleet() {
		spec.Binary = r.config.Flotilla
	}
	kubeconfig, err := r.config.Plane.Kubeconfig("system:kube-controller-manager")
	if err != nil {
		return nil, err
	}
	if err := harness.Redirect(kubeconfig, spec.Kubeconfig, "https://"+p.proxy.Addr()); err != nil {
		return nil, err
	}
	p.process, err = harness.Start(r.config.Plane, spec)
	return p, err
}

// flags returns the system's flags for a process.
func (r *Running) flags(name string) []string {
	c := r.config
	flags := RateFlags(c.System.Rate, c.fleet())
	if !c.fleet() {
		return flags
	}
	flags = append(flags, "--member-name="+name, fmt.Sprintf("--rebalance-delay=%v", c.RebalanceDelay))
	if !c.Replan {
		flags = append(flags, "--replan-interval=0s")
	}
	if c.Shards > 0 {
		flags = append(flags, fmt.Sprintf("--shards=%d", c.Shards))
	}
	return flags
}

// RateFlags returns the flags that limit a process's requests: for stock, or for each member of a
// fleet of any size.
func RateFlags(rate string, fleet bool) []string {
	qps, burst := DefaultQPS, DefaultBurst
	switch rate {
	case result.RateEqual:
	case result.RateHigh:
		qps, burst = highQPS, highBurst
	default:
		return nil
	}
	flags := []string{fmt.Sprintf("--kube-api-qps=%d", qps), fmt.Sprintf("--kube-api-burst=%d", burst)}
	if fleet && rate == result.RateEqual {
		flags = append(flags, "--share-kube-api-limits")
	}
	return flags
}

// Pid is the process ID.
func (p *Process) Pid() int { return p.process.Pid() }
