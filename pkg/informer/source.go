package informer

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
	"github.com/flotilla-kube/flotilla/pkg/informer/present"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	// fillPatience is how long an empty informer waits for another one that is being filled,
	// instead of reading its own part. Reading both at once makes both slower, and the process
	// holds everything twice: two cores need more than 15 s for 50,000 pods. A longer wait beside a
	// stuck informer would delay a shard that nobody holds.
	fillPatience = time.Minute
	// freshPatience is the least time that a follower allows for showing that what it follows is
	// current. A live watch takes milliseconds; a dead one may take a minute to be noticed. Where
	// reading has taken longer than that, the follower waits as long: a busy machine or API server
	// slows both down. A cache that has not caught up within the time of one check is given up
	// sooner.
	freshPatience = 5 * time.Second
	// attachPatience is how long an informer that has stopped reading waits for the other one to
	// have seen as much.
	attachPatience = time.Second
	// attachPause is how long it reads after waiting in vain, so that it does not list again and
	// again beside a slow watch.
	attachPause = 30 * time.Second
)

// lookAgain is the pace of checks whether another informer has caught up. For a busy resource that
// takes milliseconds, for a quiet one until the server's next bookmark, a minute or two.
func lookAgain() *wait.Backoff {
	return &wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Steps: 9, Cap: time.Second}
}

// reflected reads from the API server, from the informer's version if it has been filled.
func reflected(lw cache.ListerWatcher, example runtime.Object, description string) store.Source {
	from := listwatch.Reflection{From: lw, Example: example, Name: "shard-informer", Description: description}
	return func(ctx context.Context, into *store.Sink) { from.Run(ctx, into) }
}

// following fills an informer from another one of the process that holds a superset, and by reading
// if there is none. It never goes back to an older state, and syncs only with a state that has seen
// the informer's past.
type following struct {
	pool *Pool
	// keys are the pool's informers that it can follow, the best one first.
	keys []sharedKey
	// lead is the informer to follow if it is known; it is held for as long as this one runs, and
	// read is nil.
	lead *shared
	// within is the range that an informer of slim copies may hold whole; Everything for none.
	within shard.Range
	read   store.Source
	past   moment
	// follows receives the informer that is followed, and nil when there is none any more; nil to
	// call nothing.
	follows func(*shared)
	// outside counts the objects read that the filter drops; nil counts nothing.
	outside *atomic.Int64
}

// follower is one run of following.
type follower struct {
	following
	// reads is where it puts what it reads, and passed where another informer passes its changes.
	reads, passed *store.Sink
	// patient is until when it waits for another informer to be filled.
	patient time.Time
	// pause is when it may try to follow again.
	pause time.Time
	// joined is the informer that it has joined and may follow next; nil for none. While it reads,
	// only the holder of looking uses it. It is a channel, because a goroutine that waits may have
	// to stop.
	joined  *shared
	looking chan struct{}
}

// source returns it as the source of one informer.
func (f following) source() store.Source {
	return func(ctx context.Context, into *store.Sink) {
		run := &follower{
			following: f,
			reads:     &store.Sink{Informer: into.Informer, Outside: f.outside, Listed: into.Listed},
			passed:    &store.Sink{Informer: into.Informer, Stored: true, Within: f.within},
			patient:   time.Now().Add(fillPatience),
			looking:   make(chan struct{}, 1),
		}
		if f.lead != nil {
			f.lead.run(ctx)
		}
		run.run(ctx)
	}
}

// run fills the informer until ctx ends.
func (f *follower) run(ctx context.Context) {
	defer func() { f.join(nil) }()
	for ctx.Err() == nil {
		if lead := f.awaitLead(ctx); lead != nil && f.attach(ctx, lead) && f.stay(ctx, lead) {
			continue
		}
		f.join(nil)
		if f.read != nil {
			f.readAlone(ctx)
		} else {
			<-ctx.Done() // nothing else makes it fail
		}
	}
}

// awaitLead returns the synced informer to follow, or nil if it is better to read.
func (f *follower) awaitLead(ctx context.Context) *shared {
	lead := f.findLead()
	if lead == nil || !f.await(ctx, lead) {
		return nil
	}
	return lead
}

// await returns true once lead has synced, and false if it is better to read.
func (f *follower) await(ctx context.Context, lead *shared) bool {
	if lead.HasSynced() {
		return true
	}
	if f.read != nil {
		if f.has() {
			return false // what it has would grow old meanwhile
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, f.patient)
		defer cancel()
	}
	select {
	case <-lead.HasSyncedChecker().Done():
		return true
	case <-lead.Deserted():
	case <-ctx.Done():
	}
	return false
}

// findLead returns an informer that has, or will have, what this one needs.
func (f *follower) findLead() *shared {
	if f.lead != nil {
		return f.lead
	}
	return f.pool.lead(f.keys, func(lead *shared) bool { return lead.WillHold(f.passed) })
}

// join joins lead, and leaves the one joined before; nil joins none.
func (f *follower) join(lead *shared) {
	if f.joined != nil && f.joined != lead {
		f.joined.Unfollow(f.passed)
	}
	if f.joined = lead; lead != nil {
		lead.Join(f.passed)
	}
}

// has reports whether the informer has been filled by a source that it may have to wait for again.
func (f *follower) has() bool { return f.reads.Informer.HasSynced() }

// attach follows lead once that has seen as much as this informer. It gives up if that takes long.
func (f *follower) attach(ctx context.Context, lead *shared) bool {
	if f.read != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attachPatience)
		defer cancel()
	}
	for backoff := lookAgain(); !lead.Follow(f.passed); {
		if !lead.WillHold(f.passed) {
			if f.has() {
				f.pause = time.Now().Add(attachPause)
			}
			return false
		}
		select {
		case <-time.After(backoff.Step()):
		case <-lead.Deserted():
			return false
		case <-ctx.Done():
			f.pause = time.Now().Add(attachPause)
			return false
		}
	}
	f.reads.SetLost(false)
	return true
}

// stay follows lead until ctx ends or nobody else uses lead any more. It returns false if lead has
// not been shown to be current.
func (f *follower) stay(ctx context.Context, lead *shared) bool {
	if f.joined != lead {
		f.join(nil)
	}
	f.joined = nil
	defer lead.Unfollow(f.passed)
	f.pool.count(lead.key.resource, 1)
	defer f.pool.count(lead.key.resource, -1)
	if f.follows != nil {
		f.follows(lead)
		defer f.follows(nil)
	}
	if !f.has() && !f.refresh(ctx, lead) {
		return false
	}
	select {
	case <-lead.Deserted():
	case <-ctx.Done():
	}
	return true
}

// refresh syncs the informer once the informer it follows has seen its past.
func (f *follower) refresh(ctx context.Context, lead *shared) bool {
	if f.read == nil {
		return lead.awaitFresh(ctx, f.past) == nil && lead.Confirm(f.passed)
	}
	bounded, cancel := context.WithTimeout(ctx, max(freshPatience, min(lead.took(), time.Until(f.patient))))
	defer cancel()
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 9, Cap: 30 * time.Second}
	var last error
	for {
		err := lead.fresh(bounded, f.past)
		if err == nil {
			return lead.Confirm(f.passed)
		}
		if bounded.Err() == nil {
			last = err
		}
		switch {
		case ctx.Err() != nil || lead.ctx.Err() != nil:
			return false
		case errors.Is(err, present.ErrBehind) || bounded.Err() != nil: // Its watch may have stalled.
			klog.FromContext(ctx).Info("Could not confirm in time that a cache of the process is up to date, reading without it",
				"resource", lead.key.resource, "err", cmp.Or(last, err))
			return false
		}
		klog.FromContext(ctx).V(2).Info("Could not tell yet whether what is followed is up to date", "resource", lead.key.resource, "err", err)
		select {
		case <-time.After(backoff.Step()):
		case <-lead.Deserted():
			return false
		case <-bounded.Done(): // fresh fails at once then
		}
	}
}

// readAlone reads, from the informer's version, until ctx ends or there is an informer to follow
// that has seen as much as this one.
func (f *follower) readAlone(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	stop := f.pool.whenRun(f.keys, func() {
		looking.Go(func() {
			if f.isOvertaken(ctx) {
				cancel()
			}
		})
	})
	f.reads.Shed()
	f.read(ctx, f.reads)
	cancel()
	stop()
	looking.Wait()
}

// isOvertaken returns true once there is an informer to follow, and false when there is none any
// more or ctx has ended. An informer that has begun to read syncs by reading: giving that up for
// something of unknown age could go on for ever.
func (f *follower) isOvertaken(ctx context.Context) bool {
	if !cache.WaitFor(ctx, "", f.reads.Informer.HasSyncedChecker()) {
		return false
	}
	select {
	case f.looking <- struct{}{}:
		defer func() { <-f.looking }()
	case <-ctx.Done():
		return false
	}
	timer := time.NewTimer(time.Until(f.pause))
	defer timer.Stop()
	for backoff := lookAgain(); ; {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
		lead := f.pool.lead(f.keys, nil)
		if f.join(lead); lead == nil {
			return false
		}
		if lead.Admits(f.passed) {
			return true
		}
		timer.Reset(backoff.Step())
	}
}
