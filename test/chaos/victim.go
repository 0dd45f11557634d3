package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	// A fault proves something only if it hits a replica at work: one that has recently made this
	// many writes.
	loadedSeconds = 3
	loadedWrites  = 3
	loadedLimit   = 2 * time.Minute
)

// loadedVictim waits until managers are at work, and returns a random one of them.
func (w *world) loadedVictim(ctx context.Context) (*manager, error) {
	var candidates []*manager
	_, err := w.await(ctx, loadedLimit, "a replica is at work", func(context.Context) error {
		candidates = slices.DeleteFunc(w.wanted(), func(m *manager) bool { return w.workOf(m) < loadedWrites })
		if len(candidates) == 0 {
			return fmt.Errorf("nobody has made %d writes within %d s", loadedWrites, loadedSeconds)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	victim := candidates[w.random.IntN(len(candidates))]
	w.out.printf("      victim %s: %d writes in the last %d s%s", victim.name, w.workOf(victim), loadedSeconds, w.holdsOf(victim))
	return victim, nil
}

// workOf returns how many writes the manager has made recently.
func (w *world) workOf(m *manager) int {
	if w.opts.target == fleetTarget {
		return w.journal.writesOf(m.member, loadedSeconds)
	}
	if w.stockLeader(w.journal.snapshot()[stockName].holder) != m {
		return 0
	}
	return w.journal.writesOf(stockName, loadedSeconds)
}

// authorOf returns the name under which the journal counts the manager's writes.
func (w *world) authorOf(m *manager) string {
	if w.opts.target == stockTarget {
		return stockName
	}
	return m.member
}

// namespacesOf returns the namespaces in the shards that the manager holds.
func (w *world) namespacesOf(m *manager) []string {
	if w.opts.target == stockTarget {
		return w.namespaces
	}
	holds := w.journal.snapshot()
	return slices.DeleteFunc(slices.Clone(w.namespaces), func(namespace string) bool {
		return election.MemberOf(holds[leaseapi.ShardLease(fleetName, w.homes[namespace])].holder) != m.member
	})
}

// holdsOf says how many shards the manager holds; empty for the stock controller manager.
func (w *world) holdsOf(m *manager) string {
	if w.opts.target == stockTarget {
		return ""
	}
	n := 0
	for _, h := range w.journal.snapshot() {
		if election.MemberOf(h.holder) == m.member {
			n++
		}
	}
	return fmt.Sprintf(", holds %d shards", n)
}

// loadedShard waits until namespaced shards are at work, and returns a random one of them with its
// holder.
func (w *world) loadedShard(ctx context.Context) (shard.ID, hold, error) {
	var candidates []shard.ID
	_, err := w.await(ctx, loadedLimit, "a shard is at work", func(context.Context) error {
		candidates = nil
		for _, s := range w.plan.Shards() {
			if s.Namespaced() && w.journal.writesFor(s.ID, loadedSeconds) >= loadedWrites {
				candidates = append(candidates, s.ID)
			}
		}
		if len(candidates) == 0 {
			return fmt.Errorf("no shard has seen %d writes within %d s", loadedWrites, loadedSeconds)
		}
		return nil
	})
	if err != nil {
		return shard.ID{}, hold{}, err
	}
	id := candidates[w.random.IntN(len(candidates))]
	h := w.journal.snapshot()[leaseapi.ShardLease(fleetName, id)]
	w.out.printf("      shard %s, held by %s: %d writes in the last %d s", id, h.holder, w.journal.writesFor(id, loadedSeconds), loadedSeconds)
	return id, h, nil
}
