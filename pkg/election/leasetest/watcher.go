package leasetest

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// watcher is one watch: an unbounded queue of events and a goroutine that delivers them in order.
type watcher struct {
	client *Client
	result chan watch.Event
	more   chan struct{} // capacity 1
	done   chan struct{}
	once   sync.Once

	mu    sync.Mutex
	queue []queuedEvent
}

type queuedEvent struct {
	event watch.Event
	at    time.Time
}

func newWatcher(client *Client) *watcher {
	return &watcher{client: client, result: make(chan watch.Event), more: make(chan struct{}, 1), done: make(chan struct{})}
}

// Stop implements watch.Interface.
func (w *watcher) Stop() { w.stop() }

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.result }

func (w *watcher) stop() { w.once.Do(func() { close(w.done) }) }

func (w *watcher) enqueue(event watch.Event) {
	w.client.mu.Lock()
	lag := w.client.lag
	w.client.mu.Unlock()
	w.mu.Lock()
	w.queue = append(w.queue, queuedEvent{event: event, at: time.Now().Add(lag)})
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// pump delivers events until the watch is stopped or ctx ends.
func (w *watcher) pump(ctx context.Context) {
	defer close(w.result)
	for {
		next, ok := w.pop()
		if !ok {
			if !w.wait(ctx, w.more) {
				return
			}
			continue
		}
		if lag := time.Until(next.at); lag > 0 && !w.waitFor(ctx, lag) {
			return
		}
		w.client.mu.Lock()
		blocked := w.client.blocked["watch"]
		w.client.mu.Unlock()
		if blocked != nil && !w.wait(ctx, blocked) {
			return
		}
		select {
		case w.result <- next.event:
		case <-w.done:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (w *watcher) pop() (queuedEvent, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == 0 {
		return queuedEvent{}, false
	}
	next := w.queue[0]
	w.queue = w.queue[1:]
	return next, true
}

func (w *watcher) waitFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.done:
	case <-ctx.Done():
	}
	return false
}

func (w *watcher) wait(ctx context.Context, ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	case <-w.done:
	case <-ctx.Done():
	}
	return false
}
