package system

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// Config says what to start.
type Config struct {
	Plane  *controlplane.ControlPlane
	System result.System
	// Stock and Flotilla are the binaries.
	Stock, Flotilla string
	// Shards is the number of ranges into which a new fleet cuts the namespaces; 0 is flotilla's
	// default.
	Shards int
	// Standby starts a second stock process that waits for the first one's Lease. Fleets have none.
	Standby bool
	// RebalanceDelay is the members' delay until they get shards.
	RebalanceDelay time.Duration
	// Replan lets a fleet's planner change the plan. Otherwise the plan stays as it is, so that a
	// measurement is of one plan; Balance changes it before.
	Replan bool
}

// Running is a started system.
type Running struct {
	config    Config
	client    kubernetes.Interface
	http      *http.Client
	processes []*Process
	// started is what the processes had used for their start; nil without a call of Started.
	started map[string]Sample
	// stop ends the proxies, and done waits for them.
	stop context.CancelFunc
	done sync.WaitGroup
}

// Start starts the processes. The proxies run until Stop, or until ctx ends.
func Start(ctx context.Context, c Config) (r *Running, err error) {
	config := c.Plane.AdminConfig()
	r = &Running{config: c}
	if r.client, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if r.http, err = harness.HTTPClient(config); err != nil {
		return nil, err
	}
	proxies, stop := context.WithCancel(ctx)
	r.stop = stop
	for i, name := range c.names() {
		p, err := r.start(proxies, name, i)
		if err != nil {
			return nil, errors.Join(err, r.Stop())
		}
		r.processes = append(r.processes, p)
		// The first stock process must be the leader.
		if c.Standby && i == 0 {
			if err := r.Whole(ctx); err != nil {
				return nil, errors.Join(err, r.Stop())
			}
		}
	}
	return r, nil
}

func (c Config) fleet() bool { return c.System.Kind == result.Fleet }

func (c Config) names() []string {
	if !c.fleet() {
		if c.Standby {
			return []string{"stock", "stock-standby"}
		}
		return []string{"stock"}
	}
	var names []string
	for i := range c.System.Replicas {
		names = append(names, fmt.Sprintf("member-%d", i))
	}
	return names
}

// Client returns a client with all rights and without a proxy.
func (r *Running) Client() kubernetes.Interface { return r.client }

// Processes are all that were started, including killed ones.
func (r *Running) Processes() []*Process { return r.processes }

// Victim returns the process that a scenario kills in a round (from 1): the stock leader, or the
// members by turns.
func (r *Running) Victim(round int) *Process {
	if !r.config.fleet() {
		return r.processes[0]
	}
	return r.processes[(round-1)%len(r.processes)]
}

// Kill samples a process a last time and kills it.
func (r *Running) Kill(ctx context.Context, p *Process) error {
	last, err := r.sampleOf(ctx, p)
	if err != nil {
		return err
	}
	p.last = &last
	return p.process.Kill()
}

// Ended returns an error once a process has ended that nobody has killed.
func (r *Running) Ended() error {
	for _, p := range r.processes {
		if err := p.process.Running(); err != nil && p.last == nil {
			return err
		}
	}
	return nil
}

// Stop kills all processes, because a fleet takes long to hand over to nobody, and then stops the
// proxies.
func (r *Running) Stop() error {
	var errs []error
	for _, p := range r.processes {
		errs = append(errs, p.process.Kill())
	}
	r.http.CloseIdleConnections()
	r.stop()
	r.done.Wait()
	return errors.Join(errs...)
}

// AuditLog opens the API server's audit log.
func (r *Running) AuditLog() (*os.File, error) { return os.Open(r.config.Plane.AuditLog()) }

func (r *Running) upstream() (string, error) {
	u, err := url.Parse(r.config.Plane.AdminConfig().Host)
	if err != nil {
		return "", err
	}
	if u.Host == "" {
		return r.config.Plane.AdminConfig().Host, nil
	}
	return u.Host, nil
}
