package cli

import (
	"context"
	"errors"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/election"
)

const (
	// drawInterval is the minimum time between two readings of the watch's changes, drawLatest the
	// maximum: a watch does not report silence.
	drawInterval = 250 * time.Millisecond
	drawLatest   = time.Second
)

// watch lists and watches the Leases, with one list and one watch. It calls next with the current
// reading, the previous one, and the changes between them, at most every drawInterval. It returns
// nil once ctx has ended, or the error that next returns. It begins a broken watch again for ever,
// but returns an error if the Leases cannot be listed at all.
func (c *connection) watch(ctx context.Context, next func(r, before *status.Reading, happened []status.Event) error) error {
	r, observer, err := c.observer(ctx)
	if err != nil || observer == nil {
		return err
	}
	var notes notebook
	changed, stop := observer.SubscribeChanges(func(before, after election.Observation) bool {
		notes.add(before, after)
		return true
	})
	defer stop()
	// The reflector's logs would spoil the screen; silence is a finding.
	running, end := context.WithCancel(klog.NewContext(ctx, klog.Logger{}))
	var all sync.WaitGroup
	all.Go(func() { observer.Run(running) })
	defer all.Wait()
	defer end()

	if err := next(r, nil, nil); err != nil {
		return err
	}
	for {
		if err := c.awaitChange(ctx, changed); err != nil {
			return nil
		}
		pairs := notes.take()
		if !observer.HasSynced() {
			continue
		}
		var leases []coordinationv1.Lease
		for _, o := range observer.List() {
			leases = append(leases, *o.Lease)
		}
		before := r
		r = status.Read(c.target.Fleet, leases, c.clock.Now()).Following(before)
		if err := next(r, before, happened(r, before, pairs)); err != nil {
			return err
		}
	}
}

// happened returns what has happened between two readings, by the changes that were observed
// meanwhile.
func happened(r, before *status.Reading, pairs []pair) []status.Event {
	var all []status.Event
	for _, p := range pairs {
		if p.before.ResourceVersion == "" { // the watch begins: compare with what was read before it
			if p.before = before.Lease(p.after.Name); !p.before.Exists {
				p.before.Seen = before.Now // it was not on the list
			}
		}
		if !r.HasHeartbeats() {
			p.before.Heartbeat = nil
		}
		changed := p.before.ResourceVersion != p.after.ResourceVersion
		if changed && (r.Fleets(p.before) || r.Fleets(p.after)) {
			all = append(all, status.Changes(r, p.before, p.after, r.Now)...)
		}
	}
	return append(all, status.Silences(before, r)...)
}

// observer returns a reading of the Leases, and an observer of them that does not run yet. It lists
// first, so that an error says at once if they cannot be listed; it is nil if ctx has ended
// meanwhile.
func (c *connection) observer(ctx context.Context) (*status.Reading, *election.Observer, error) {
	first, cancel := context.WithTimeout(ctx, c.target.Timeout)
	defer cancel()
	r, err := c.read(first)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	}
	o, err := election.NewObserver(election.ObserverConfig{Fleet: c.target.Fleet, Client: listing{c.leases}, Clock: c.clock})
	return r, o, err
}

// listing makes the reflector list and then watch, as kubectl does: a streaming list saves nothing
// with so few objects.
type listing struct{ election.LeaseReader }

// IsWatchListSemanticsUnSupported is the method that client-go looks for in a client.
func (listing) IsWatchListSemanticsUnSupported() bool { return true }

// errEnded says that the user has stopped the command.
var errEnded = errors.New("interrupted")

// awaitChange returns after the next change and drawInterval, or after drawLatest.
func (c *connection) awaitChange(ctx context.Context, changed <-chan struct{}) error {
	least, latest := c.clock.NewTimer(drawInterval), c.clock.NewTimer(drawLatest)
	defer least.Stop()
	defer latest.Stop()
	select {
	case <-least.C():
	case <-ctx.Done():
		return errEnded
	}
	select {
	case <-changed:
	case <-latest.C():
	case <-ctx.Done():
		return errEnded
	}
	return nil
}

// notebook keeps every change of a Lease until it is taken: readings are less frequent, and would
// show several as one.
type notebook struct {
	mu    sync.Mutex
	pairs []pair
}

type pair struct{ before, after election.Observation }

func (n *notebook) add(before, after election.Observation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pairs = append(n.pairs, pair{before, after})
}

func (n *notebook) take() []pair {
	n.mu.Lock()
	defer n.mu.Unlock()
	pairs := n.pairs
	n.pairs = nil
	return pairs
}
