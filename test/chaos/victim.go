package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
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
func (env *environment) loadedVictim(ctx context.Context) (*manager, error) {
	var candidates []*manager
	_, err := env.await(ctx, loadedLimit, "a replica is at work", func(context.Context) error {
		candidates = slices.DeleteFunc(env.wanted(), func(m *manager) bool { return env.workOf(m) < loadedWrites })
		if len(candidates) == 0 {
			return fmt.Errorf("no replica has made %d writes within %d s", loadedWrites, loadedSeconds)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	victim := candidates[env.random.IntN(len(candidates))]
	env.out.printf("      victim %s: %d writes in the last %d s%s", victim.name, env.workOf(victim), loadedSeconds, env.holdsOf(victim))
	return victim, nil
}

// workOf returns how many writes the manager has made recently.
func (env *environment) workOf(m *manager) int {
	if env.opts.target == fleetTarget {
		return env.journal.writesOf(m.member, loadedSeconds)
	}
	if env.stockLeader(env.journal.snapshot()[stockName].holder) != m {
		return 0
	}
	return env.journal.writesOf(stockName, loadedSeconds)
}

// authorOf returns the name under which the journal counts the manager's writes.
func (env *environment) authorOf(m *manager) string {
	if env.opts.target == stockTarget {
		return stockName
	}
	return m.member
}

// namespacesOf returns the namespaces in the shards that the manager holds.
func (env *environment) namespacesOf(m *manager) []string {
	if env.opts.target == stockTarget {
		return env.namespaces
	}
	holds := env.journal.snapshot()
	return slices.DeleteFunc(slices.Clone(env.namespaces), func(namespace string) bool {
		return leaserecord.MemberOf(holds[leaseapi.ShardLease(fleetName, env.homes[namespace])].holder) != m.member
	})
}

// holdsOf says how many shards the manager holds; empty for the stock controller manager.
func (env *environment) holdsOf(m *manager) string {
	if env.opts.target == stockTarget {
		return ""
	}
	n := 0
	for _, h := range env.journal.snapshot() {
		if leaserecord.MemberOf(h.holder) == m.member {
			n++
		}
	}
	return fmt.Sprintf(", holds %d shards", n)
}

// loadedShard waits until namespaced shards are at work, and returns a random one of them with its
// holder.
func (env *environment) loadedShard(ctx context.Context) (shard.ID, hold, error) {
	var candidates []shard.ID
	_, err := env.await(ctx, loadedLimit, "a shard is at work", func(context.Context) error {
		candidates = nil
		for _, s := range env.plan.Shards() {
			if s.Namespaced() && env.journal.writesFor(s.ID, loadedSeconds) >= loadedWrites {
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
	id := candidates[env.random.IntN(len(candidates))]
	h := env.journal.snapshot()[leaseapi.ShardLease(fleetName, id)]
	env.out.printf("      shard %s, held by %s: %d writes in the last %d s", id, h.holder, env.journal.writesFor(id, loadedSeconds), loadedSeconds)
	return id, h, nil
}
