package main

import (
	"context"
	"syscall"
	"time"
)

// apiServerFault stops the API server. It returns at once, or after the Leases have expired.
type apiServerFault struct {
	world  *world
	outage bool
	down   bool
}

// Begin implements fault.
func (f *apiServerFault) Begin(ctx context.Context) (expectation, error) {
	if _, err := f.world.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	e := expectation{victims: names(f.world.wanted()), everyone: true}
	f.down = true
	if f.outage {
		e.lasts, e.ends = f.world.opts.timing.LeaseDuration+beyondLease, true
		return e, f.world.cp.StopAPIServer()
	}
	return e, f.world.cp.SignalAPIServer(syscall.SIGKILL)
}

// End implements fault.
func (f *apiServerFault) End(ctx context.Context) error {
	if !f.down {
		return nil
	}
	return f.world.cp.StartAPIServer(ctx)
}

// etcdPause is how long etcd may pause without harm: less than the renew deadline, even for a
// renewal that has just missed it.
const etcdPause = time.Second

// etcdFault suspends etcd, for a pause or for longer than a claim lasts.
type etcdFault struct {
	world  *world
	outage bool
}

// Begin implements fault.
func (f *etcdFault) Begin(ctx context.Context) (expectation, error) {
	if _, err := f.world.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	e := expectation{lasts: etcdPause}
	if f.outage {
		timing := f.world.opts.timing
		lasts := timing.RenewDeadline + time.Duration(f.world.random.Int64N(int64(timing.LeaseDuration+beyondLease)))
		// Some members survive a shorter outage.
		ends := lasts >= timing.LeaseDuration
		e = expectation{victims: names(f.world.wanted()), everyone: true, ends: ends, lasts: lasts}
	}
	f.world.out.printf("      etcd stops for %.1f s", e.lasts.Seconds())
	return e, f.world.cp.SignalEtcd(syscall.SIGSTOP)
}

// End implements fault.
func (f *etcdFault) End(context.Context) error { return f.world.cp.SignalEtcd(syscall.SIGCONT) }

func names(managers []*manager) []string {
	var all []string
	for _, m := range managers {
		all = append(all, m.name)
	}
	return all
}
