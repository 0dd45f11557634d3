package informer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// fillPatience is how long an informer that has nothing yet waits for another one that is being filled, instead of reading
	// its own part. Reading both at once makes both slower and the process hold everything twice: two cores need more
	// than 15 s for 50,000 pods. Longer would delay a shard that nobody holds beside an informer that is stuck.
	fillPatience = time.Minute
	// freshPatience is how long what is followed may take to be shown to be of the present. A watch that is alive takes
	// milliseconds; one that is not may take a minute to be found out.
	freshPatience = 5 * time.Second
	// attachPatience is how long an informer that has stopped reading waits for the other one to have seen as much.
	attachPatience = time.Second
	// attachPause is how long it reads after that was in vain, lest it lists again and again beside a slow watch.
	attachPause = 30 * time.Second
)

// lookAgain is the pace at which it is looked whether another informer has caught up. That of a busy resource has within
// milliseconds, that of a quiet one with the server's next bookmark, within a minute or two.
func lookAgain() *wait.Backoff {
	return &wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Steps: 9, Cap: time.Second}
}

// reflected reads from the API server, from where the informer is if it has been filled.
func reflected(lw cache.ListerWatcher, example runtime.Object, description string) source {
	from := reflection{lw: lw, example: example, name: "shard-informer", description: description}
	return func(ctx context.Context, into *sink) { from.run(ctx, into, into.place()) }
}

// following fills an informer from another one of the process where there is one that holds a superset, and by reading where
// there is none. What it is filled with is never older than what it held, and it syncs only with what has seen its past.
type following struct {
	pool *Pool
	// keys are the informers of the pool that will do, the best one first.
	keys []sharedKey
	// lead is the one to follow where it is known, and held, for as long as this one runs; read is nil then.
	lead *shared
	read source
	past past
	// follows is told which informer is followed, and nil when none is any more; nil for nobody.
	follows func(*shared)
	// outside counts objects that the filter drops of what is read; nil for not.
	outside *atomic.Int64
}

// follower is one run of following.
type follower struct {
	following
	// reads and passed are where it puts what it reads and what another informer passes on.
	reads, passed *sink
	// patient is how long it waits for another informer to be filled.
	patient time.Time
	// pause is when it may try to follow again.
	pause time.Time
}

// source returns it as the source of one informer.
func (f following) source() source {
	return func(ctx context.Context, into *sink) {
		run := &follower{
			following: f,
			reads:     &sink{i: into.i, outside: f.outside, listed: into.listed},
			passed:    &sink{i: into.i, stored: true},
			patient:   time.Now().Add(fillPatience),
		}
		if f.lead != nil {
			f.lead.run(ctx)
		}
		run.run(ctx)
	}
}

// run fills the informer until ctx ends.
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		if lead := f.awaitLead(ctx); lead != nil && f.attach(ctx, lead) && f.stay(ctx, lead) {
			continue
		}
		if f.read != nil {
			f.readAlone(ctx)
		} else {
			<-ctx.Done() // nothing else makes it fail
		}
	}
}

// awaitLead returns the informer to follow, synced, or nil where it is better to read.
func (f *follower) awaitLead(ctx context.Context) *shared {
	lead := f.findLead()
	if lead == nil || lead.HasSynced() {
		return lead
	}
	if f.read != nil {
		if f.has() {
			return nil // what it has would grow old meanwhile
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, f.patient)
		defer cancel()
	}
	select {
	case <-lead.HasSyncedChecker().Done():
		return lead
	case <-lead.deserted:
	case <-ctx.Done():
	}
	return nil
}

func (f *follower) findLead() *shared {
	if f.lead != nil {
		return f.lead
	}
	return f.pool.lead(f.keys)
}

// has reports whether the informer has been filled by a source that it may have to wait for again.
func (f *follower) has() bool { return f.reads.i.HasSynced() }

// attach follows lead once that has seen as much as this informer. It gives up when that takes long.
func (f *follower) attach(ctx context.Context, lead *shared) bool {
	if f.read != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, attachPatience)
		defer cancel()
	}
	for backoff := lookAgain(); !lead.follow(f.passed); {
		select {
		case <-time.After(backoff.Step()):
		case <-lead.deserted:
			return false
		case <-ctx.Done():
			f.pause = time.Now().Add(attachPause)
			return false
		}
	}
	f.reads.lost = false
	return true
}

// stay follows lead until ctx ends or nobody else uses lead any more. It returns false when lead has not been shown to be of
// the present.
func (f *follower) stay(ctx context.Context, lead *shared) bool {
	defer lead.unfollow(f.passed)
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
	case <-lead.deserted:
	case <-ctx.Done():
	}
	return true
}

// refresh syncs the informer once what it follows has seen its past.
func (f *follower) refresh(ctx context.Context, lead *shared) bool {
	if f.read == nil {
		return lead.awaitFresh(ctx, f.past) == nil && lead.confirm(f.passed)
	}
	ctx, cancel := context.WithTimeout(ctx, freshPatience)
	defer cancel()
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 9, Cap: 30 * time.Second}
	for {
		err := lead.fresh(ctx, f.past)
		if err == nil {
			return lead.confirm(f.passed)
		}
		klog.FromContext(ctx).V(2).Info("Could not tell yet whether what is followed is of the present", "resource", lead.key.resource, "err", err)
		select {
		case <-time.After(backoff.Step()):
		case <-lead.deserted:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// readAlone reads, from where the informer is, until ctx ends or there is an informer to follow
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
	f.reads.shed()
	f.read(ctx, f.reads)
	cancel()
	stop()
	looking.Wait()
}

// isOvertaken returns true once there is an informer to follow, and false when there is none any more or ctx has ended. An
// informer that has begun to read syncs by that: to give it up for something of unknown age could go on for ever.
func (f *follower) isOvertaken(ctx context.Context) bool {
	if !cache.WaitFor(ctx, "", done{f.reads.i}) {
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
		lead := f.pool.lead(f.keys)
		if lead == nil {
			return false
		}
		if lead.HasSynced() && reached(lead.LastSyncResourceVersion(), f.reads.i.LastSyncResourceVersion()) {
			return true
		}
		timer.Reset(backoff.Step())
	}
}
