package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/calibrate"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// environment is everything that a fault can change and observe.
type environment struct {
	opts   options
	out    *printer
	random *rand.Rand
	// plan is the plan in force, first the initial one.
	plan, first shard.Plan
	// retired are the Leases of shards that have left the plan.
	retired map[string]bool
	cp      *controlplane.ControlPlane
	client  kubernetes.Interface
	// namespaces have one canary each; homes has the shard of each.
	namespaces []string
	homes      map[string]shard.ID
	journal    *journal
	load       *load
	config     managerConfig
	stall      stallWatch
	// machine is the machine's speed before the fault. handed has the gaps of planned moves, and
	// slowest the slowest machine before those faults.
	machine, slowest calibrate.Machine
	handed           []time.Duration
	// http asks the managers whether they are ready.
	http *http.Client

	mu       sync.Mutex
	managers []*manager
	// leaders are the stock managers by the identities under which they have led.
	leaders map[string]*manager
	// add starts to supervise a manager.
	add func(*manager)
}

func newHTTPClient() *http.Client {
	return &http.Client{
		Timeout: 10 * time.Second,
		// A manager's serving certificate is self-signed, and nothing secret is sent.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	}
}

// all returns all managers so far, sorted by name.
func (env *environment) all() []*manager {
	env.mu.Lock()
	defer env.mu.Unlock()
	return slices.Clone(env.managers)
}

// wanted returns the managers that should run.
func (env *environment) wanted() []*manager {
	return slices.DeleteFunc(env.all(), func(m *manager) bool { return !m.isWanted() })
}

// join creates a manager that is supervised and not started yet.
func (env *environment) join(name, member string, extra ...string) (*manager, error) {
	for _, m := range env.all() {
		if m.name == name {
			return m, nil
		}
	}
	m, err := newManager(env.config, name, member, env.random.Uint64(), extra...)
	if err != nil {
		return nil, err
	}
	env.mu.Lock()
	env.managers = append(env.managers, m)
	slices.SortFunc(env.managers, func(a, b *manager) int { return strings.Compare(a.name, b.name) })
	env.mu.Unlock()
	env.add(m)
	return m, nil
}

// await is harness.Await.
func (env *environment) await(ctx context.Context, within time.Duration, what string, condition harness.Condition) (time.Duration, error) {
	return harness.Await(ctx, within, what, condition)
}

// held returns nil if a running member holds every shard and has renewed its Lease since a time.
// Those in without must hold none.
func (env *environment) held(since time.Time, without ...string) error {
	if env.opts.target == stockTarget {
		return env.stockHeld(since, without...)
	}
	running := map[string]bool{}
	for _, m := range env.all() {
		if m.running() && !slices.Contains(without, m.name) {
			running[m.member] = true
		}
	}
	return heldBy(env.leases(), env.journal.snapshot(), running, since)
}

// leases returns the names of the shards' Leases, sorted.
func (env *environment) leases() []string {
	if env.opts.target == stockTarget {
		return []string{stockName}
	}
	var names []string
	for _, s := range env.plan.Shards() {
		names = append(names, leaseapi.ShardLease(fleetName, s.ID))
	}
	return names
}

// heldBy returns nil if one of these members has renewed each Lease since a time.
func heldBy(leases []string, holds map[string]hold, members map[string]bool, since time.Time) error {
	var faults []string
	for _, name := range leases {
		h, ok := holds[name]
		switch {
		case !ok:
			faults = append(faults, name+" has no Lease")
		case !members[leaserecord.MemberOf(h.holder)]:
			faults = append(faults, fmt.Sprintf("%s is held by %q", name, h.holder))
		case h.renewed.Before(since):
			faults = append(faults, fmt.Sprintf("%s has not been renewed by %s for %v", name, h.holder, time.Since(h.renewed).Round(time.Millisecond)))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d shards are not held by a live member; %s", len(faults), len(leases), faults[0])
}

// ready returns nil if every wanted manager is ready.
func (env *environment) ready(ctx context.Context) error {
	for _, m := range env.wanted() {
		if err := env.readyOne(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (env *environment) readyOne(ctx context.Context, m *manager) error {
	status, err := env.status(ctx, m)
	if err != nil {
		return fmt.Errorf("%s is not ready: %w", m.name, err)
	}
	if status != http.StatusOK {
		return fmt.Errorf("%s is not ready: status %d", m.name, status)
	}
	return nil
}

// status returns the status of the manager's readiness endpoint.
func (env *environment) status(ctx context.Context, m *manager) (int, error) {
	p := m.current()
	if p == nil {
		return 0, fmt.Errorf("%s has not been started", m.name)
	}
	code, _, err := p.As(env.http).Get(ctx, m.readyPath())
	return code, err
}

// spreadOut returns nil if every wanted member holds a shard.
func (env *environment) spreadOut() error {
	if env.opts.target == stockTarget {
		return nil
	}
	counts := map[string]int{}
	for _, h := range env.journal.snapshot() {
		counts[leaserecord.MemberOf(h.holder)]++
	}
	for _, m := range env.wanted() {
		if counts[m.member] == 0 {
			return fmt.Errorf("%s holds nothing: %v", m.member, counts)
		}
	}
	return nil
}

// whole returns nil if everything is as it is without a fault: all shards are held, all managers
// are ready and have a share of the work, and every canary has moved since a time.
func (env *environment) whole(ctx context.Context, since time.Time) error {
	return errors.Join(env.held(since), env.leaderLockHeld(since), env.spreadOut(), env.journal.progressed(env.namespaces, since), env.ready(ctx))
}

// leaderLockHeld returns nil if the fleet holds its leader lock, if it has one, and has renewed it
// since a time.
func (env *environment) leaderLockHeld(since time.Time) error {
	if env.opts.leaderLock() == "" {
		return nil
	}
	now := env.journal.leaderLockNow()
	switch {
	case now.holder != leaseapi.LeaderLockIdentity(fleetName):
		return fmt.Errorf("the leader lock, Lease %s, is held by %q", env.opts.leaderLock(), now.holder)
	case now.renewed.Before(since):
		return fmt.Errorf("the leader lock, Lease %s, has not been renewed for %v", env.opts.leaderLock(), time.Since(now.renewed).Round(time.Millisecond))
	}
	return nil
}

// restore returns everything to its state before the first fault, after a fault that went wrong.
// All connections to the API server are open, exactly the first members run, none of them is
// drained, and the plan is the first one.
func (env *environment) restore(ctx context.Context) error {
	var errs []error
	for _, m := range env.all() {
		m.injector.Set(0, 0)
		m.proxy.Set(harness.Pass)
		if err := m.thaw(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
		switch wanted := slices.Contains(env.opts.members(), m.name); {
		case wanted && (!m.isWanted() || m.use("")):
			errs = append(errs, m.kill(), m.up())
		case !wanted:
			_ = m.leave(ctx) // How it ends does not matter here.
		}
	}
	if env.opts.target == fleetTarget {
		_, err := env.await(ctx, env.wholeLimit(), "what an operator asked for is taken back", func(ctx context.Context) error {
			return errors.Join(env.undrain(ctx), env.putBack(ctx))
		})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// wholeLimit is how long the fleet may take to be whole. Leases may expire twice in that time:
// those of a member that ended, and then its predecessor's for its next incarnation.
func (env *environment) wholeLimit() time.Duration {
	return 2*env.opts.timing.LeaseDuration + rebalanceDelay + 4*env.opts.margin
}

// awaitWhole waits for whole.
func (env *environment) awaitWhole(ctx context.Context, since time.Time) (time.Duration, error) {
	return env.await(ctx, env.wholeLimit(), "the fleet is whole again", func(ctx context.Context) error { return env.whole(ctx, since) })
}

// panicked returns an error if a manager's log has a panic.
func (env *environment) panicked() error {
	for _, m := range env.all() {
		path := m.logPath()
		if path == "" {
			continue
		}
		if err := harness.Panicked(path); err != nil {
			return err
		}
	}
	return nil
}

// stockHeld is held for the stock controller manager, whose Lease does not show which of two
// processes on one machine holds it. Their logs do.
func (env *environment) stockHeld(since time.Time, without ...string) error {
	h := env.journal.snapshot()[stockName]
	leader := env.stockLeader(h.holder)
	switch {
	case leader == nil || slices.Contains(without, leader.name) || !leader.running():
		return fmt.Errorf("the Lease is held by %q", h.holder)
	case h.renewed.Before(since):
		return fmt.Errorf("the Lease has not been renewed for %v", time.Since(h.renewed))
	}
	return nil
}

// stockLeader returns the manager whose log says that it became the leader under this identity.
func (env *environment) stockLeader(identity string) *manager {
	env.mu.Lock()
	known := env.leaders[identity]
	env.mu.Unlock()
	if known != nil {
		return known
	}
	for _, m := range env.all() {
		path := m.logPath()
		if path == "" || identity == "" {
			continue
		}
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), identity+" became leader") {
			env.mu.Lock()
			env.leaders[identity] = m
			env.mu.Unlock()
			return m
		}
	}
	return nil
}
