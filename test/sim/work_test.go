package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
)

var (
	errBuild   = errors.New("the work could not be built")
	errStart   = errors.New("the work could not be started")
	errUnknown = errors.New("a write whose outcome is unknown")
)

// work is what a process does for one shard: it writes all the time, through its fence.
type work struct {
	process *process
	given   fleet.Work
	part    part
	client  http.RoundTripper
	// warmed is set once its cache is full. The cache lags behind the API server, but is never
	// older than the list that began to fill it.
	warmed   bool
	listed   int
	listedAt time.Time
	lag      time.Duration
	// stubborn work never ends, so its process must.
	stubborn bool
	linger   time.Duration
	// trusted is the last holder's record of its writes, if the cache was compared with nothing
	// else. refreshed is when the cache was compared with the current state; zero if it was not.
	trusted   *fence.Writes
	refreshed time.Time
	// began is when the work began to run, and term its claim's term then.
	began time.Time
	term  int32
	over  atomic.Bool
}

// refreshing is work whose cache can be compared with the current state.
type refreshing struct{ *work }

// build is fleet.Config.Build.
func (p *process) build(ctx context.Context, given fleet.Work) (fleet.Instance, error) {
	if err := p.barrier.pass(); err != nil {
		return nil, err
	}
	if p.chance(0.03) {
		return nil, errBuild
	}
	if err := p.mint(ctx); err != nil {
		return nil, err
	}
	k := &work{process: p, given: given, part: p.sim.know(given), lag: p.upTo(300 * time.Millisecond), linger: p.upTo(300 * time.Millisecond)}
	switch {
	case p.chance(0.05):
		k.linger = p.upTo(2 * time.Second)
	case p.chance(0.03):
		k.lag = p.upTo(10 * time.Second)
	}
	k.stubborn = p.chance(0.01) && !p.sim.healed.Load()
	k.client = given.Fence(&wire{process: p, shard: given.Shard.ID, part: k.part})
	p.sim.built(k, 1)
	if p.sim.refresh {
		return refreshing{k}, nil
	}
	return k, nil
}

// Warm implements fleet.Instance.
func (k *work) Warm(ctx context.Context) error {
	k.listedAt = time.Now()
	k.listed = k.process.sim.versionAt(k.part, k.listedAt)
	took := k.process.upTo(time.Second)
	if k.process.chance(0.03) {
		took = 20 * time.Second
	}
	select {
	case <-time.After(took):
		k.warmed = true
		return k.process.barrier.pass()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CatchUp implements fleet.Instance: a cache has seen the writes that are older than its lag.
func (k *work) CatchUp(ctx context.Context, left fence.Writes) error {
	last := left.Resources[resource]
	if last.Unknown {
		return errUnknown
	}
	k.trusted = &left
	version, _ := strconv.Atoi(last.Version)
	return k.await(ctx, version)
}

// Refresh implements fleet.Refresher.
func (k refreshing) Refresh(ctx context.Context) error {
	k.trusted, k.refreshed = nil, time.Now()
	return k.await(ctx, k.process.sim.versionAt(k.part, k.refreshed))
}

// await returns once the cache has reached a version.
func (k *work) await(ctx context.Context, version int) error {
	for {
		if err := k.process.barrier.pass(); err != nil {
			return err
		}
		if k.seen() >= version {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// seen returns the version that the cache has reached.
func (k *work) seen() int {
	return max(k.listed, k.process.sim.versionAt(k.part, time.Now().Add(-k.lag)))
}

// Run implements fleet.Instance.
func (k *work) Run(ctx context.Context) error {
	defer k.process.sim.built(k, -1)
	defer k.over.Store(true)
	if err := k.process.barrier.pass(); err != nil {
		return err
	}
	if k.process.chance(0.02) {
		return errStart
	}
	k.process.sim.beginWork(k)
	defer k.process.sim.endWork(k)
	k.given.Running()
	for ctx.Err() == nil {
		if !k.write(ctx) {
			return nil
		}
		k.pause(ctx, 50*time.Millisecond+k.process.upTo(1500*time.Millisecond))
	}
	end := time.Now().Add(k.linger)
	lasting := context.WithoutCancel(ctx)
	for k.stubborn || time.Now().Before(end) {
		pause := 100*time.Millisecond + k.process.upTo(500*time.Millisecond)
		if !k.stubborn {
			pause = min(time.Until(end), pause)
		}
		k.pause(lasting, pause)
		if !k.write(lasting) {
			return nil
		}
	}
	return nil
}

// Close implements fleet.Instance.
func (k *work) Close() {
	k.over.Store(true)
	k.process.sim.built(k, -1)
}

func (k *work) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// write makes one write and returns false if the process was killed.
func (k *work) write(ctx context.Context) bool {
	if k.process.barrier.pass() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://sim/api/v1/namespaces/n/pods/p", http.NoBody)
	if err != nil {
		panic(fmt.Sprint("a request that never fails: ", err))
	}
	response, err := k.client.RoundTrip(request)
	if errors.Is(err, fence.ErrRefused) {
		k.process.sim.tally(fenceRefusals)
	}
	if err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
	return k.process.barrier.pass() == nil
}
