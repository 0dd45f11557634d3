package controllers

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// withEvents returns a clientset whose requests for events take turns at the rate limit.
//
// Upstream's controllers send events with the client that they work with, from one goroutine for
// each controller: when the limit is reached, one event passes for as many requests as there are
// workers. A goroutine in each shard would take a multiple of that from the work, and so would one
// goroutine next to the few workers of a shard that does all of the work.
func withEvents(all kubernetes.Interface, config *rest.Config, httpClient *http.Client, limiter eventLimiter) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.RateLimiter = limiter
	events, err := corev1client.NewForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("for events: %w", err)
	}
	return eventsApart{all, coreClient{all.CoreV1(), events}}, nil
}

// eventsApart is a clientset with another client for events of the core group; upstream's
// controllers send no others.
type eventsApart struct {
	kubernetes.Interface
	core corev1client.CoreV1Interface
}

// CoreV1 implements kubernetes.Interface.
func (c eventsApart) CoreV1() corev1client.CoreV1Interface { return c.core }

type coreClient struct {
	corev1client.CoreV1Interface
	events corev1client.EventsGetter
}

// Events implements corev1client.CoreV1Interface.
func (c coreClient) Events(namespace string) corev1client.EventInterface {
	return c.events.Events(namespace)
}

// workPerEvent is how many requests of a controller's work pass its limit for each event, while
// both wait for it: upstream's default number of workers, each of which waits with at least one
// request, while one goroutine waits with an event. A shard may have fewer workers.
const workPerEvent = 5

// turn is the turn of the events of one client of a controller, over all shards of the process.
type turn struct {
	// taken is full while an event waits.
	taken chan struct{}
	// waiting is how many requests of the work wait for the limit, and passed how many have passed
	// since the last event.
	waiting, passed atomic.Int32
	// moved receives a value for each request that has passed.
	moved chan struct{}
}

func newTurn() *turn { return &turn{taken: make(chan struct{}, 1), moved: make(chan struct{}, 1)} }

// isDue reports whether so much work is or was ahead of an event that it may wait for the limit
// like anything else.
func (t *turn) isDue() bool { return t.waiting.Load()+t.passed.Load() >= workPerEvent }

// workLimiter is the limiter of requests other than events.
type workLimiter struct {
	openLimiter
	turn *turn
}

// Wait implements flowcontrol.RateLimiter.
func (l workLimiter) Wait(ctx context.Context) error {
	l.turn.waiting.Add(1)
	err := l.openLimiter.Wait(ctx)
	if l.turn.passed.Load() < workPerEvent {
		l.turn.passed.Add(1)
	}
	l.turn.waiting.Add(-1)
	select {
	case l.turn.moved <- struct{}{}:
	default:
	}
	return err
}

// eventLimiter is the limiter of events. Of all that share a turn one waits at a time, and until it
// is due it takes only what nobody else wants. Once closed is closed, nothing waits.
type eventLimiter struct {
	openLimiter
	turn *turn
}

// Wait implements flowcontrol.RateLimiter.
func (l eventLimiter) Wait(ctx context.Context) error {
	select {
	case l.turn.taken <- struct{}{}:
		defer func() { <-l.turn.taken }()
	case <-l.closed:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer l.turn.passed.Store(0)
	// The time to save up one request if nobody else sends any; bounded, since the flags allow any
	// rate.
	seconds := min(max(1/float64(l.QPS()), 0.001), 1)
	again := time.NewTicker(time.Duration(seconds * float64(time.Second)))
	defer again.Stop()
	for !l.turn.isDue() {
		if l.TryAccept() {
			return nil
		}
		select {
		case <-l.turn.moved:
		case <-again.C:
		case <-l.closed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return l.openLimiter.Wait(ctx)
}
