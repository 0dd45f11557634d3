package main

import (
	"context"
	"syscall"
	"time"
)

// apiServerFault ends the API server. It comes back at once, or after the Leases have run out.
type apiServerFault struct {
	world  *world
	outage bool
}

// Begin implements fault.
func (f *apiServerFault) Begin(ctx context.Context) (expectation, error) {
	if _, err := f.world.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	e := expectation{everyone: true}
	if f.outage {
		e.lasts = f.world.opts.timing.LeaseDuration + beyondLease
		return e, f.world.cp.StopAPIServer()
	}
	return e, f.world.cp.SignalAPIServer(syscall.SIGKILL)
}

// End implements fault.
func (f *apiServerFault) End(ctx context.Context) error { return f.world.cp.StartAPIServer(ctx) }

// etcdFault stops etcd, for less or more than the Leases last.
type etcdFault struct{ world *world }

// Begin implements fault.
func (f *etcdFault) Begin(ctx context.Context) (expectation, error) {
	if _, err := f.world.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	longest := f.world.opts.timing.LeaseDuration + beyondLease
	e := expectation{everyone: true, lasts: time.Second + time.Duration(f.world.random.Int64N(int64(longest)))}
	f.world.out.printf("      etcd stops for %.1f s", e.lasts.Seconds())
	return e, f.world.cp.SignalEtcd(syscall.SIGSTOP)
}

// End implements fault.
func (f *etcdFault) End(context.Context) error { return f.world.cp.SignalEtcd(syscall.SIGCONT) }
