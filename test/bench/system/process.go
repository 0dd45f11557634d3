package system

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/flotilla-kube/flotilla/test/bench/measure"
	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// DefaultQPS and DefaultBurst are upstream's defaults of --kube-api-qps and --kube-api-burst, requests a second and at once of
// each controller.
const DefaultQPS, DefaultBurst = 20, 30

// Limits that leave CPU as the only bound.
const highQPS, highBurst = 1000, 2000

// Process is one controller manager and its way to the API server.
type Process struct {
	Name    string
	process *controlplane.Process
	proxy   *measure.Proxy
	// source is the address that the API server sees, url where the process serves.
	source, url string
	// last is what was seen before it was killed; nil while nobody has.
	last *Sample
}

// start starts the i-th process.
func (r *Running) start(proxies context.Context, name string, i int) (*Process, error) {
	port, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	upstream, err := r.upstream()
	if err != nil {
		return nil, err
	}
	p := &Process{Name: name, url: fmt.Sprintf("https://127.0.0.1:%d", port), source: fmt.Sprintf("127.0.1.%d", i+1)}
	if p.proxy, err = measure.NewProxy(upstream, p.source); err != nil {
		return nil, err
	}
	r.done.Go(func() { _ = p.proxy.Run(proxies) })
	args, err := r.arguments(p, port)
	if err != nil {
		return nil, err
	}
	binary := r.config.Stock
	if r.config.fleet() {
		binary = r.config.Flotilla
	}
	p.process, err = r.config.Plane.StartProcess(name, binary, args)
	return p, err
}

// arguments are the flags of a process: the control plane's, by way of the process's proxy, and those of the system.
func (r *Running) arguments(p *Process, port int) ([]string, error) {
	c := r.config
	args := c.Plane.ControllerManagerArgs()
	kubeconfig := ""
	for _, arg := range args {
		if value, found := strings.CutPrefix(arg, "--kubeconfig="); found {
			kubeconfig = value
		}
	}
	content, err := os.ReadFile(kubeconfig)
	if err != nil {
		return nil, err
	}
	upstream, err := r.upstream()
	if err != nil {
		return nil, err
	}
	if !strings.Contains(string(content), upstream) {
		return nil, fmt.Errorf("%s does not name the API server %s", kubeconfig, upstream)
	}
	proxied := filepath.Join(filepath.Dir(kubeconfig), "proxied-"+p.Name+".yaml")
	if err := os.WriteFile(proxied, []byte(strings.ReplaceAll(string(content), upstream, p.proxy.Addr())), 0o600); err != nil {
		return nil, err
	}
	args = replaceAll(args, func(arg string) string { return strings.ReplaceAll(arg, kubeconfig, proxied) })
	args = append(args, fmt.Sprintf("--secure-port=%d", port))
	args = append(args, RateFlags(c.System.Rate, c.fleet())...)
	if !c.fleet() {
		return args, nil
	}
	// The plan is to stand still while something is measured: Balance has it changed before.
	args = append(args, "--member-name="+p.Name, "--replan-interval=0s", fmt.Sprintf("--rebalance-delay=%v", c.RebalanceDelay))
	if c.Shards > 0 {
		args = append(args, fmt.Sprintf("--shards=%d", c.Shards))
	}
	return args, nil
}

// RateFlags returns the flags that limit the requests of a process: of stock, or of each member of a fleet of any size.
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

// Pid is the process's number.
func (p *Process) Pid() int { return p.process.Pid() }
