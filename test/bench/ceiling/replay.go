package ceiling

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Options say how a recording is replayed.
type Options struct {
	// Prepare creates what the recorded work began with: namespaces, nodes, the users' objects.
	// Default: nothing.
	Prepare func(context.Context) error
	// Since is when the work began in the recorded run. Earlier requests of controllers are
	// replayed first, and do not count in the time; there, creating an existing object is no
	// failure. Default: everything is work.
	Since time.Time
	// Ready returns when the work may begin, after the earlier requests; the clock and the limits
	// start then. Default: at once.
	Ready func(context.Context) error
	// Barriers are times in the recorded run, in order and after Since. What arrived at or after
	// one is sent once everything before it has been answered, as where a user waited. Default:
	// none.
	Barriers []time.Time
	// Workers is the number of requests in flight. Default: 16.
	Workers int
	// QPS limits each controller's requests of the work per second, and Burst how many may come at
	// once; upstream's flags are 20 and 30. Default: no limit.
	QPS   float32
	Burst int
	// Events also sends Events. Default: false.
	Events bool
}

const (
	defaultWorkers = 16
	// mostFailed is the share of requests that may fail.
	mostFailed = 0.01
	// kept is how many failure messages are kept.
	kept = 10
)

func (o Options) complete() (Options, error) {
	if o.Workers == 0 {
		o.Workers = defaultWorkers
	}
	switch {
	case o.Workers < 0:
		return o, fmt.Errorf("ceiling: Workers is %d, must be 0 or more", o.Workers)
	case o.QPS < 0 || o.Burst < 0:
		return o, fmt.Errorf("ceiling: QPS is %v and Burst is %d, must be 0 or more", o.QPS, o.Burst)
	case o.QPS > 0 && o.Burst == 0:
		return o, fmt.Errorf("ceiling: Burst is 0, must be at least 1 where QPS is %v", o.QPS)
	case !slices.IsSortedFunc(o.Barriers, time.Time.Compare) || len(o.Barriers) > 0 && o.Barriers[0].Before(o.Since):
		return o, fmt.Errorf("ceiling: Barriers are %v, must be in order and not before Since, %v", o.Barriers, o.Since)
	default:
		return o, nil
	}
}

// Outcome is the outcome of a replay.
type Outcome struct {
	// Seconds is the time from the first request of the work to the last answer.
	Seconds float64 `json:"seconds"`
	// Parts are the seconds up to each of Options.Barriers and after the last; their sum is
	// Seconds.
	Parts []float64 `json:"parts"`
	// Requests counts those of the work, failed ones included, and Prepared those before it.
	Requests int `json:"requests"`
	Prepared int `json:"prepared"`
	// Retries are requests that were repeated, because the object of that name was not gone yet.
	Retries int `json:"retries"`
	// Failures of both parts, by verb, resource and status: "delete pods 404 NotFound"; 0 means no
	// answer.
	Failed   int            `json:"failed"`
	Failures map[string]int `json:"failures"`
	// Examples are the first messages.
	Examples []string `json:"examples,omitempty"`
	// Controllers is how many requests of the work each of them sent.
	Controllers map[string]int `json:"controllers"`
	// Unmapped is how many UIDs of the recorded run have no object here; they are sent unchanged.
	Unmapped int `json:"unmapped"`
}

// Replay sends the requests to the API server of config and returns how long that took. config's
// user should have all rights and be exempt from priority and fairness, such as system:masters; its
// rate limits are not used. If more than 1 % fail, Replay returns an error together with the
// outcome. It returns after all its goroutines.
func (r Recording) Replay(ctx context.Context, config *rest.Config, o Options) (Outcome, error) {
	o, err := o.complete()
	if err != nil {
		return Outcome{}, err
	}
	p, err := newPlayer(r, config, o)
	if err != nil {
		return Outcome{}, err
	}
	if o.Prepare != nil {
		if err := o.Prepare(ctx); err != nil {
			return Outcome{}, fmt.Errorf("ceiling: prepare: %w", err)
		}
	}
	before := p.until(0, o.Since)
	p.preparing = true
	p.resolve(ctx)
	p.play(ctx, 0, before)
	p.preparing = false
	if o.Ready != nil {
		if err := o.Ready(ctx); err != nil {
			return p.out, fmt.Errorf("ceiling: ready: %w", err)
		}
	}
	began, from := time.Now(), before
	for i := range len(o.Barriers) + 1 {
		to := len(p.requests)
		if i < len(o.Barriers) {
			to = p.until(from, o.Barriers[i])
		}
		p.play(ctx, from, to)
		from = to
		all := time.Since(began).Seconds()
		p.out.Parts = append(p.out.Parts, all-p.out.Seconds)
		p.out.Seconds = all
	}
	p.out.Prepared, p.out.Requests = before, len(p.requests)-before
	for _, q := range p.requests[before:] {
		p.out.Controllers[q.controller]++
	}
	return p.out, errors.Join(context.Cause(ctx), p.out.check())
}

// until returns the first request at or after from that arrived at or after t, or that follows one
// that did.
func (p *player) until(from int, t time.Time) int {
	for from < len(p.requests) && p.requests[from].received.Before(t) {
		from++
	}
	return from
}

func (o Outcome) check() error {
	all := o.Prepared + o.Requests
	if float64(o.Failed) <= mostFailed*float64(all) {
		return nil
	}
	return fmt.Errorf("ceiling: %d of %d requests failed, at most %.0f %% may: %v %q", o.Failed, all, mostFailed*100, o.Failures, o.Examples)
}

// player is one replay.
type player struct {
	client
	options   Options
	requests  []request
	recording Recording
	slots     chan struct{} // one for each request in flight
	limits    map[string]flowcontrol.RateLimiter
	preparing bool
	// insisting are the objects whose latest resourceVersion must be known.
	insisting map[string]bool

	// mu guards the fields below.
	mu       sync.Mutex
	out      Outcome
	uids     map[string]string // recorded UID to the one here
	versions map[string]string // latest resourceVersion by object
}

func newPlayer(r Recording, config *rest.Config, o Options) (*player, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("ceiling: %w", err)
	}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("ceiling: %w", err)
	}
	p := &player{
		client:  client{base: &url.URL{Scheme: base.Scheme, Host: base.Host}, http: http},
		options: o, recording: r, slots: make(chan struct{}, o.Workers), limits: map[string]flowcontrol.RateLimiter{},
		out:  Outcome{Failures: map[string]int{}, Controllers: map[string]int{}},
		uids: map[string]string{}, versions: map[string]string{}, insisting: map[string]bool{},
	}
	for _, q := range r.requests {
		if q.event && !o.Events {
			continue
		}
		p.requests = append(p.requests, q)
		if q.versioned {
			p.insisting[q.object] = true
		}
		if o.QPS > 0 && p.limits[q.controller] == nil {
			p.limits[q.controller] = flowcontrol.NewTokenBucketRateLimiter(o.QPS, o.Burst)
		}
	}
	return p, nil
}

// resolve reads the mentioned UIDs that no request creates.
func (p *player) resolve(ctx context.Context) {
	made, wanted := map[string]bool{}, map[string]bool{}
	for _, q := range p.requests {
		if q.uid != "" {
			made[q.uid] = true
		}
		for _, m := range q.mentions {
			wanted[m.uid] = true
		}
	}
	var group sync.WaitGroup
	for uid := range wanted {
		if made[uid] {
			continue
		}
		p.slots <- struct{}{}
		group.Go(func() {
			defer func() { <-p.slots }()
			now, err := p.read(ctx, p.recording.places[uid])
			p.mu.Lock()
			defer p.mu.Unlock()
			if err != nil || now.uid == "" {
				p.out.Unmapped++
				return
			}
			p.uids[uid] = now.uid
		})
	}
	group.Wait()
}

// play sends requests[from:to], each as soon as those that it depends on have been answered.
func (p *player) play(ctx context.Context, from, to int) {
	g := newGraph(p.requests, from, to)
	var group sync.WaitGroup
	for controller, ready := range g.ready {
		// Each controller has its own workers, so that one that waits for its limit delays no
		// other.
		for range min(p.options.Workers, cap(ready)) {
			group.Go(func() {
				for i := range ready {
					if limit := p.limits[controller]; limit != nil && !p.preparing {
						_ = limit.Wait(ctx) // ctx has ended, which the request will report
					}
					p.slots <- struct{}{}
					p.send(ctx, p.requests[i], g.follows[i-from])
					<-p.slots
					g.done(i)
				}
			})
		}
	}
	group.Wait()
}
