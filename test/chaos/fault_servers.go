package main

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// apiServerFault stops the API server. It returns at once, or after the Leases have expired.
type apiServerFault struct {
	env    *environment
	outage bool
	down   bool
}

// Begin implements fault.
func (f *apiServerFault) Begin(ctx context.Context) (expectation, error) {
	if _, err := f.env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	e := expectation{victims: names(f.env.wanted()), everyone: true}
	f.down = true
	if f.outage {
		e.lasts, e.ends = f.env.opts.timing.LeaseDuration+beyondLease, true
		return e, f.env.cp.StopAPIServer()
	}
	return e, f.env.cp.SignalAPIServer(syscall.SIGKILL)
}

// End implements fault.
func (f *apiServerFault) End(ctx context.Context) error {
	if !f.down {
		return nil
	}
	return f.env.cp.StartAPIServer(ctx)
}

// etcdPause is how long etcd may pause without harm: less than the renew deadline, even for a
// renewal that has just missed it.
const etcdPause = time.Second

// etcdFault suspends etcd for a time that stall chooses.
type etcdFault struct {
	env   *environment
	stall func(random *rand.Rand, timing election.Timing) time.Duration
}

// pause is a stall that hurts nobody.
func pause(*rand.Rand, election.Timing) time.Duration { return etcdPause }

// deadline is a stall that ends within a retry period of when claims run out. Some members survive
// it, and others give up while they do.
func deadline(random *rand.Rand, timing election.Timing) time.Duration {
	return timing.RenewDeadline - timing.RetryPeriod + time.Duration(random.Int64N(int64(2*timing.RetryPeriod)))
}

// outage is a stall that outlasts claims. Some members may survive the shorter ones.
func outage(random *rand.Rand, timing election.Timing) time.Duration {
	return timing.RenewDeadline + time.Duration(random.Int64N(int64(timing.LeaseDuration+beyondLease)))
}

// Begin implements fault.
func (f *etcdFault) Begin(ctx context.Context) (expectation, error) {
	if _, err := f.env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	timing := f.env.opts.timing
	e := expectation{lasts: f.stall(f.env.random, timing)}
	if e.lasts > etcdPause {
		e.victims, e.everyone, e.ends = names(f.env.wanted()), true, e.lasts >= timing.LeaseDuration
	}
	f.env.out.printf("      etcd stops for %.1f s", e.lasts.Seconds())
	return e, f.env.cp.SignalEtcd(syscall.SIGSTOP)
}

// End implements fault.
func (f *etcdFault) End(context.Context) error { return f.env.cp.SignalEtcd(syscall.SIGCONT) }

func names(managers []*manager) []string {
	var all []string
	for _, m := range managers {
		all = append(all, m.name)
	}
	return all
}
