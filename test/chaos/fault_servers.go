package main

import (
	"context"
	"syscall"
	"time"
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

// etcdFault suspends etcd, for a pause or for longer than a claim lasts.
type etcdFault struct {
	env    *environment
	outage bool
}

// Begin implements fault.
func (f *etcdFault) Begin(ctx context.Context) (expectation, error) {
	if _, err := f.env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	e := expectation{lasts: etcdPause}
	if f.outage {
		timing := f.env.opts.timing
		lasts := timing.RenewDeadline + time.Duration(f.env.random.Int64N(int64(timing.LeaseDuration+beyondLease)))
		// Some members survive a shorter outage.
		ends := lasts >= timing.LeaseDuration
		e = expectation{victims: names(f.env.wanted()), everyone: true, ends: ends, lasts: lasts}
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
