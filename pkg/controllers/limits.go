package controllers

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// limits holds the rate limiters of the controllers that may run in several shards of the process:
// those of namespaced rings. All methods except share may be called concurrently.
type limits struct {
	// multiplier of the flags' QPS and burst, by controller, where upstream raises them. A
	// controller that is not in it runs once, and its clients limit themselves.
	multiplier map[string]multiplier
	// shared says that the limits are the fleet's, not each member's.
	shared bool

	mu       sync.Mutex
	limiters map[limiterKey]flowcontrol.RateLimiter
	// turns are the turns in which events wait for a limiter.
	turns map[limiterKey]*turn
	// parts are the process's parts of the limits, by controller; empty unless they are shared.
	parts map[string]*part
}

type multiplier struct{ qps, burst float32 }

// of returns the limits of a config, multiplied.
func (m multiplier) of(config *rest.Config) (qps float32, burst int) {
	qps, burst = config.QPS, config.Burst
	if qps == 0 {
		qps = rest.DefaultQPS
	}
	if burst == 0 {
		burst = rest.DefaultBurst
	}
	return qps * m.qps, int(float32(burst) * m.burst)
}

// ownLimiter returns the limit of a client whose controller runs once, with upstream's multiplier;
// nil for no limit. Clients that are built from one config share it.
func ownLimiter(controller, name string, via catalogue.Via, config *rest.Config) flowcontrol.RateLimiter {
	if config.QPS < 0 {
		return nil
	}
	m := multiplier{1, 1}
	row, _ := catalogue.Lookup(controller)
	for _, c := range row.Clients {
		if c.Name == name && c.Via == via {
			m = multiplier{float32(c.QPS), float32(c.Burst)}
		}
	}
	return flowcontrol.NewTokenBucketRateLimiter(m.of(config))
}

// limiterKey names what has its own limit, as in upstream: a controller may have several clients.
type limiterKey struct{ controller, client string }

func newLimits(m map[string]multiplier) *limits {
	return &limits{multiplier: m, limiters: map[limiterKey]flowcontrol.RateLimiter{}, turns: map[limiterKey]*turn{}, parts: map[string]*part{}}
}

// share makes the limits the fleet's. It must be called before any other method.
func (l *limits) share() { l.shared = true }

// limiter returns the limiter that the controller's clients of this name share, or nil if the
// client's own limit from config is right. shards is as in Spec.
func (l *limits) limiter(controller, name string, config *rest.Config, shards int) flowcontrol.RateLimiter {
	m, several := l.multiplier[controller]
	if !several || config.QPS < 0 {
		return nil
	}
	qps, burst := m.of(config)
	key := limiterKey{controller, name}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared {
		l.setPart(controller, shards, 0)
	}
	if _, ok := l.limiters[key]; !ok {
		if l.shared {
			l.limiters[key] = newSharedLimiter(qps, burst, l.parts[controller].size())
		} else {
			l.limiters[key] = flowcontrol.NewTokenBucketRateLimiter(qps, burst)
		}
	}
	return l.limiters[key]
}

// turn returns the turn in which the events of the controller's clients of this name wait for their
// limiter.
func (l *limits) turn(controller, name string) *turn {
	key := limiterKey{controller, name}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.turns[key]; !ok {
		l.turns[key] = newTurn()
	}
	return l.turns[key]
}

// count counts one more running shard, of a ring of that many, for each of the controllers, until
// discount is called, once.
func (l *limits) count(controllers []string, shards int) (discount func()) {
	l.add(controllers, shards, 1)
	return func() { l.add(controllers, shards, -1) }
}

func (l *limits) add(controllers []string, shards, n int) {
	if !l.shared {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, controller := range controllers {
		if _, several := l.multiplier[controller]; several {
			l.setPart(controller, shards, n)
		}
	}
}

// setPart records that n more shards, of a ring of that many, run the controller, and adjusts its
// limiters. The caller holds mu.
func (l *limits) setPart(controller string, shards, n int) {
	shards = max(shards, 1)
	p := l.parts[controller]
	if p == nil {
		p = &part{running: map[int]int{}}
		l.parts[controller] = p
	}
	before := p.size()
	p.shards = shards
	p.running[shards] += n
	if p.running[shards] == 0 {
		delete(p.running, shards)
	}
	after := p.size()
	if after == before {
		return
	}
	for key, limiter := range l.limiters {
		if key.controller == controller {
			limiter.(*sharedLimiter).set(after)
		}
	}
}

// part is the process's part of the limits of one controller.
type part struct {
	// shards is the number of shards in the ring that was seen last. running is how many run here,
	// by the number in their ring: while a plan takes effect, shards of the old ring run beside
	// those of the new one.
	shards  int
	running map[int]int
}

// size is above 0, so that nothing waits for ever: if nothing runs it is one shard's, for what is
// being built and what is late. It is at most 1, even while a plan takes effect.
func (p *part) size() float64 {
	size := 0.0
	for shards, n := range p.running {
		size += float64(n) / float64(shards)
	}
	if size == 0 {
		size = 1 / float64(max(p.shards, 1))
	}
	return min(size, 1)
}

// sharedLimiter allows a part of a rate that may change at any time, also for those who wait
// already. They wait in turn, and only the first of them has a reservation: a reservation keeps the
// pace at which it was made, and hundreds may wait.
//
// It implements flowcontrol.RateLimiter.
type sharedLimiter struct {
	qps, burst float64 // the whole
	limiter    *rate.Limiter
	// turn is full while somebody is first; senders get in by the order in which they come.
	turn chan struct{}

	mu      sync.Mutex
	changed chan struct{} // closed when the part has changed
}

var _ flowcontrol.RateLimiter = (*sharedLimiter)(nil)

// newSharedLimiter returns a limiter for a part of a limit, above 0 and up to 1.
func newSharedLimiter(qps float32, burst int, part float64) *sharedLimiter {
	l := &sharedLimiter{qps: float64(qps), burst: float64(burst), turn: make(chan struct{}, 1), changed: make(chan struct{})}
	l.limiter = rate.NewLimiter(l.of(part))
	return l
}

// of returns a part of the limit. It rounds the burst up, since without one nothing would ever
// pass.
func (l *sharedLimiter) of(part float64) (rate.Limit, int) {
	const inexact = 1e-6 // tolerance of the arithmetic for whole numbers
	return rate.Limit(l.qps * part), max(1, int(math.Ceil(l.burst*part-inexact)))
}

// set changes the part. Saved-up requests stay, as far as the burst allows.
func (l *sharedLimiter) set(part float64) {
	limit, burst := l.of(part)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limiter.SetLimit(limit)
	l.limiter.SetBurst(burst)
	close(l.changed)
	l.changed = make(chan struct{})
}

// Wait implements flowcontrol.RateLimiter.
func (l *sharedLimiter) Wait(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-l.turn }()
	for {
		passed, err := l.waitAsFirst(ctx)
		if passed || err != nil {
			return err
		}
	}
}

// waitAsFirst returns false if the part has changed meanwhile.
func (l *sharedLimiter) waitAsFirst(ctx context.Context) (passed bool, err error) {
	l.mu.Lock()
	changed := l.changed
	l.mu.Unlock()
	reserved := l.limiter.Reserve()
	delay := reserved.Delay()
	if delay == 0 {
		return true, nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-changed:
		reserved.Cancel()
		return false, nil
	case <-ctx.Done():
		reserved.Cancel()
		return false, ctx.Err()
	}
}

// TryAccept implements flowcontrol.RateLimiter.
func (l *sharedLimiter) TryAccept() bool { return l.limiter.Allow() }

// Accept implements flowcontrol.RateLimiter.
func (l *sharedLimiter) Accept() { _ = l.Wait(context.Background()) } // whose end is the only error

// QPS implements flowcontrol.RateLimiter.
func (l *sharedLimiter) QPS() float32 { return float32(l.limiter.Limit()) }

// Stop implements flowcontrol.RateLimiter.
func (l *sharedLimiter) Stop() {}
