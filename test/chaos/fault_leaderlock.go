package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/test/calibrate"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// errNoLeaderLock is returned by leader-lock faults if -replica-flags has turned the lock off.
var errNoLeaderLock = errors.New("this fleet has no leader lock")

// leaderLockFault changes the leader lock: the stock controller manager's Lease, which the fleet
// holds.
type leaderLockFault struct {
	env *environment
	how leaseEdit
	// taken is set if the Lease then names another holder. The members must end, and may not write
	// until the forged lock has expired. Otherwise the fleet rewrites the Lease and continues.
	taken  bool
	before leaderLockState
	began  time.Time
}

// Begin implements fault.
func (f *leaderLockFault) Begin(ctx context.Context) (expectation, error) {
	env := f.env
	if env.opts.leaderLock() == "" {
		return expectation{}, errNoLeaderLock
	}
	if _, err := env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	f.before, f.began = env.journal.leaderLockNow(), time.Now()
	env.out.printf("      the leader lock is in its term %d", f.before.transitions)
	// A member may write until it learns of the change, at the longest until its own claim ends.
	t := &tampering{lease: env.opts.leaderLock(), from: f.began, to: f.began.Add(env.opts.timing.RenewDeadline)}
	e := expectation{tampered: t, leaderLockMoves: true, verify: f.verifyKept}
	if f.taken {
		e.victims, e.everyone, e.ends, e.verify = names(env.wanted()), true, true, f.verifyTaken
	}
	return e, env.tamper(ctx, env.opts.leaderLock(), f.how)
}

// End implements fault.
func (f *leaderLockFault) End(context.Context) error { return nil }

// verifyKept returns an error unless the leader lock is back in its term, and nobody else held it.
func (f *leaderLockFault) verifyKept(context.Context) error {
	changes := f.env.journal.leaderLockChangesSince(f.began)
	for _, c := range changes {
		if c.to.holder != "" && !c.to.equal(f.before.leaderLockTerm) {
			return fmt.Errorf("the leader lock went to %q, term %d: must be back in term %d of %q", c.to.holder, c.to.transitions, f.before.transitions, f.before.holder)
		}
	}
	if len(changes) == 0 {
		return errors.New("the log has no change of the leader lock")
	}
	took := changes[len(changes)-1].at.Sub(f.began)
	return f.env.hold("the fleet had written the leader lock again", took, calibrate.LeaderLockWritten, calibrate.TakeoverSteps, f.env.machine)
}

// verifyTaken returns an error unless the fleet waited until the forgery had expired, wrote nothing
// in the meantime, and then began a new term.
func (f *leaderLockFault) verifyTaken(context.Context) error {
	env, timing := f.env, f.env.opts.timing
	now := env.journal.leaderLockNow()
	if now.holder != leaseapi.LeaderLockIdentity(fleetName) || now.transitions <= f.before.transitions {
		return fmt.Errorf("the leader lock is held by %q for term %d: must be the fleet's, above term %d", now.holder, now.transitions, f.before.transitions)
	}
	var taken time.Time
	for _, c := range env.journal.leaderLockChangesSince(f.began) {
		if c.to.holder == now.holder {
			taken = c.at
		}
	}
	waited := taken.Sub(f.began)
	if waited < timing.LeaseDuration {
		return fmt.Errorf("the fleet took the leader lock %v after the forgery: must be %v or later", waited, timing.LeaseDuration)
	}
	if n := env.journal.writesBetween(f.began.Add(timing.RenewDeadline), taken); n > 0 {
		return fmt.Errorf("%d writes of members arrived while somebody else held the leader lock, more than %v after the forgery", n, timing.RenewDeadline)
	}
	// The members restart, and measure the lease duration from then.
	return env.hold("the fleet had the leader lock again", waited, restartPause+timing.LeaseDuration+calibrate.Takeover, calibrate.StartSteps, env.machine)
}

// stockFault starts a stock controller manager with its own flags beside the fleet, as on a node
// that has not been migrated yet.
type stockFault struct {
	env    *environment
	stock  *harness.Manager
	before int
}

// Begin implements fault.
func (f *stockFault) Begin(ctx context.Context) (expectation, error) {
	env := f.env
	if env.opts.leaderLock() == "" {
		return expectation{}, errNoLeaderLock
	}
	if _, err := env.loadedVictim(ctx); err != nil {
		return expectation{}, err
	}
	f.before = env.journal.writesEver(stockName)
	var err error
	f.stock, err = harness.Start(env.cp, harness.Spec{Name: "stock", Binary: stockName, Flags: append(timingFlags(env.opts.timing), "--v=4"), Grace: grace})
	if err != nil {
		return expectation{}, err
	}
	waits := f.stock.Logs("is held by", leaseapi.LeaderLockIdentity(fleetName))
	_, err = env.await(ctx, loadedLimit, "the stock controller manager waits for the fleet", waits)
	return expectation{lasts: env.opts.timing.LeaseDuration + beyondLease, progress: true, verify: f.verify}, err
}

// End implements fault.
func (f *stockFault) End(ctx context.Context) error {
	if f.stock == nil {
		return nil
	}
	if err := f.stock.Running(); err != nil {
		return err
	}
	return f.stock.Stop(ctx)
}

// verify returns an error if the stock controller manager has led or written anything.
func (f *stockFault) verify(context.Context) error {
	log, err := f.stock.Log()
	if err != nil {
		return err
	}
	if strings.Contains(log, "became leader") {
		return fmt.Errorf("the stock controller manager became leader beside the fleet, see %s", f.stock.LogPath())
	}
	if n := f.env.journal.writesEver(stockName) - f.before; n > 0 {
		return fmt.Errorf("the stock controller manager made %d writes beside the fleet, see %s", n, f.stock.LogPath())
	}
	return nil
}
