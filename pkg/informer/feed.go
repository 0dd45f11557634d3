package informer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
	"github.com/flotilla-kube/flotilla/pkg/informer/present"
)

// gatherPatience is how long a reading waits for more ranges before it lists. Ranges that a member
// gets together, at its start or later, come within that time.
const gatherPatience = 50 * time.Millisecond

// feed reads a whole resource that the API server does not filter by range, once for all ranges of
// the process: the server would send everything to each of them. It stores nothing, and drops what
// is outside the ranges as it comes.
//
// Ranges that come together share one reading, from its list on. Ranges that come later get a
// reading of their own, which lists after the previous one has, and later go over to the oldest
// reading. Ranges that followed another informer or read alone before continue from their version:
// a reading of such ranges lists nothing.
type feed struct {
	pool    *Pool
	key     sharedKey
	read    listwatch.Reader
	example runtime.Object
	// filters is closed once the server has been found to filter.
	filters chan struct{}
	over    sync.Once
	// users is guarded by pool.mu; when it falls to 0, the feed ends.
	users   int
	running sync.WaitGroup

	// mu makes each event of a reading one step for all of its ranges, and guards changes of the
	// ranges. It is taken before the mutexes of their informers.
	mu sync.Mutex
	// readings are the readings that have ranges, the oldest first. Only the first one takes ranges
	// over, so no range goes over twice.
	readings []*reading
}

// portion is what a range takes of a feed; feed.mu guards it.
type portion struct {
	into    *store.Sink
	reading *reading
	// since is the version of the portion while its reading has not come that far; empty otherwise.
	// An informer never goes back in time.
	since string
}

// takes reports whether something at version is news.
func (p *portion) takes(version string) bool {
	if p.since != "" && present.Reached(p.since, version) {
		return false
	}
	p.since = ""
	return true
}

// readTogether fills mine.into from what the process reads of the whole resource. It returns when
// ctx has ended, or when the ranges part because the API server has been found to filter; it passes
// nothing on after that. lost says that it was about to list.
func (p *Pool) readTogether(ctx context.Context, key sharedKey, read listwatch.Reader, mine *portion) (lost bool) {
	f := p.enter(key, read, mine.into.Informer.Example())
	defer p.leave(f)
	mine.since = mine.into.Place()
	mine.into = &store.Sink{Informer: mine.into.Informer, Stored: true}
	f.join(mine)
	select {
	case <-f.filters:
	case <-ctx.Done():
	}
	return f.quit(mine)
}

func (p *Pool) enter(key sharedKey, read listwatch.Reader, example runtime.Object) *feed {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.feeds[key]
	if !ok {
		f = &feed{pool: p, key: key, read: read, example: example, filters: make(chan struct{})}
		p.feeds[key] = f
	}
	f.users++
	return f
}

func (p *Pool) leave(f *feed) {
	p.mu.Lock()
	f.users--
	last := f.users == 0
	if last {
		p.retireLocked(f)
	}
	p.mu.Unlock()
	if last {
		f.running.Wait()
	}
}

// retire makes a feed take no more ranges.
func (p *Pool) retire(f *feed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retireLocked(f)
}

func (p *Pool) retireLocked(f *feed) {
	if p.feeds[f.key] == f {
		delete(p.feeds, f.key)
	}
}

// join adds a range to the newest reading if that has not begun, or else to a new one. Ranges that
// continue from their version and ranges that must list do not share one.
func (f *feed) join(p *portion) {
	f.mu.Lock()
	defer f.mu.Unlock()
	resumes := p.since != ""
	var newest *reading
	for _, r := range f.readings {
		if r.resumes == resumes {
			newest = r
		}
	}
	if newest == nil || newest.began {
		newest = f.beginLocked(newest, resumes)
	}
	newest.portions[p] = struct{}{}
	p.reading = newest
}

// quit takes a range out, and reports whether its reading was about to list. Nothing is passed to
// the range after that.
func (f *feed) quit(p *portion) (lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(p.reading.portions, p)
	if len(p.reading.portions) == 0 {
		f.endLocked(p.reading)
	}
	return p.reading.lost || p.reading.listing
}

// part makes all ranges leave, because the server has been found to filter.
func (f *feed) part() {
	f.over.Do(func() {
		f.pool.retire(f) // or those that leave could come back to it
		close(f.filters)
	})
}

// beginLocked begins a reading. If it lists, it does so once the previous one has.
func (f *feed) beginLocked(before *reading, resumes bool) *reading {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reading{feed: f, ctx: ctx, stop: cancel, resumes: resumes, portions: map[*portion]struct{}{}, synced: make(chan struct{})}
	f.readings = append(f.readings, r)
	f.running.Go(func() { r.run(before) })
	return r
}

func (f *feed) endLocked(r *reading) {
	r.stop()
	f.readings = slices.DeleteFunc(f.readings, func(other *reading) bool { return other == r })
}

// reading is one list and watch of a whole resource. It implements listwatch.Store; feed.mu guards
// it.
type reading struct {
	feed     *feed
	ctx      context.Context
	stop     context.CancelFunc
	synced   chan struct{}
	portions map[*portion]struct{}
	// resumes says that its ranges continue from their versions. Otherwise they must list.
	resumes bool
	// began says that it has begun to read. listing says that a list is in progress, which has
	// nothing for ranges that come later.
	began, listing bool
	// lost says that it was about to list when the server was found to filter.
	lost bool
	// asking says that it is asking in the background whether the server filters.
	asking bool
	// version is the version it has reached, passed counts its steps.
	version string
	passed  int
	// older is the reading that the ranges will go over to, and had is that reading's count of
	// steps when this one first saw it.
	older *reading
	had   int
}

var _ listwatch.Store = &reading{}

func (r *reading) run(before *reading) {
	timer := time.NewTimer(gatherPatience)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.ctx.Done():
		return
	}
	if r.resumes {
		r.resume()
	} else if before != nil {
		select {
		case <-before.synced:
		case <-before.ctx.Done():
		case <-r.ctx.Done():
			return
		}
	}
	all := listwatch.Reflection{From: r.listWatch(), Example: r.feed.example, Name: "shard-informers", Description: r.feed.key.resource.String()}
	all.Run(r.ctx, r)
}

// resume begins to read at the version of the range that is furthest behind.
func (r *reading) resume() {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	for p := range r.portions {
		if r.version == "" || present.Reached(r.version, p.since) {
			r.version = p.since
		}
	}
	r.began = true
	close(r.synced)
}

func (r *reading) listWatch() cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			take, discarded, err := r.begin(ctx, true)
			if err != nil {
				return nil, err
			}
			list, err := r.feed.read.List(ctx, listwatch.Current(options))
			if err != nil {
				return nil, err
			}
			return list, listwatch.FilterList(list, take, discarded)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			take, discarded, err := r.begin(ctx, listwatch.Streams(options))
			if err != nil {
				return nil, err
			}
			w, err := r.feed.read.Watch(ctx, options)
			if err != nil || !listwatch.Streams(options) {
				return w, err
			}
			return listwatch.FilterWatch(w, take, discarded, true), nil
		},
	}
}

// begin is called before each request. take keeps of a list what is in one of the present ranges,
// and discarded counts the rest, see discardedLocked. The error is ctx's; if the server has been
// found to filter, begin returns only with that error.
func (r *reading) begin(ctx context.Context, list bool) (take listwatch.Taking, discarded *atomic.Int64, err error) {
	f := r.feed
	mode, known := f.pool.prober.Mode(ctx, f.key.probed(), f.read)
	if mode == listwatch.ServerSide {
		r.setLost(list)
		f.part()
		<-ctx.Done() // as all ranges leave
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !known && !r.asking && r.ctx.Err() == nil {
		r.asking = true
		f.running.Go(r.askAgain)
	}
	if !list {
		return nil, nil, nil
	}
	r.began, r.listing = true, true
	return r.takesLocked(), r.discardedLocked(), nil
}

// discardedLocked returns the counter of objects and events that nobody keeps; nil if an informer
// picks from everything that the server sends.
func (r *reading) discardedLocked() *atomic.Int64 {
	for p := range r.portions {
		if p.into.Picks() {
			return nil
		}
	}
	return &r.feed.pool.discarded
}

// takesLocked returns what the current portions take of a list.
func (r *reading) takesLocked() listwatch.Taking {
	parts := make([]func(obj any) bool, 0, len(r.portions))
	for p := range r.portions {
		parts = append(parts, p.into.Takes())
	}
	return listwatch.Only(func(obj any) bool {
		return slices.ContainsFunc(parts, func(keeps func(any) bool) bool { return keeps(obj) })
	})
}

func (r *reading) setLost(lost bool) {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	r.lost = lost
}

// askAgain asks until the API server has said whether it filters. A watch that began without the
// answer would go on without it for minutes.
func (r *reading) askAgain() {
	timer := time.NewTimer(listwatch.ProbeAgain)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.ctx.Done():
			return
		}
		if mode, known := r.feed.pool.prober.Mode(r.ctx, r.feed.key.probed(), r.feed.read); known {
			if mode == listwatch.ServerSide {
				r.feed.part()
			}
			return
		}
		timer.Reset(listwatch.ProbeAgain)
	}
}

// Add implements cache.ReflectorStore.
func (r *reading) Add(obj any) error { return r.change(obj, (*store.Sink).Update) }

// Update implements cache.ReflectorStore.
func (r *reading) Update(obj any) error { return r.change(obj, (*store.Sink).Update) }

// Delete implements cache.ReflectorStore.
func (r *reading) Delete(obj any) error { return r.change(obj, (*store.Sink).Delete) }

// change passes an event on to the ranges that it belongs to, and to the others as a bookmark.
func (r *reading) change(obj any, step func(into *store.Sink, obj any) error) error {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	version := present.VersionOf(obj)
	if len(r.portions) == 0 {
		return nil // it has ended
	}
	if !r.keepsLocked(obj) {
		if discarded := r.discardedLocked(); discarded != nil {
			discarded.Add(1)
		}
		return r.passLocked(version, func(p *portion) error { return p.into.Bookmark(version) })
	}
	obj, err := r.transformed(obj)
	if err != nil {
		return err
	}
	return r.passLocked(version, func(p *portion) error { return step(p.into, obj) })
}

// Replace implements cache.ReflectorStore.
func (r *reading) Replace(list []any, version string) error {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	kept := make([]any, 0, len(list))
	for _, obj := range list {
		if !r.keepsLocked(obj) {
			continue // a range that has left since
		}
		obj, err := r.transformed(obj)
		if err != nil {
			return err
		}
		kept = append(kept, obj)
	}
	if err := r.passLocked(version, func(p *portion) error { return p.into.Replace(kept, version) }); err != nil {
		return err // and it is listed again
	}
	if r.listing = false; !cache.IsDone(r) {
		close(r.synced)
	}
	r.feed.mergeLocked()
	return nil
}

// Bookmark implements cache.ReflectorBookmarkStore.
func (r *reading) Bookmark(version string) error {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	return r.passLocked(version, func(p *portion) error { return p.into.Bookmark(version) })
}

// Resync implements cache.ReflectorStore; handlers have timers of their own.
func (r *reading) Resync() error { return nil }

// Transformer implements cache.TransformingStore.
func (r *reading) Transformer() cache.TransformFunc { return r.feed.pool.config.Transform }

// Place implements listwatch.Store.
func (r *reading) Place() string {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	return r.version
}

// Name and Done make a reading a cache.DoneChecker.
func (r *reading) Name() string          { return "Reading of " + r.feed.key.resource.String() }
func (r *reading) Done() <-chan struct{} { return r.synced }

func (r *reading) keepsLocked(obj any) bool {
	for p := range r.portions {
		if p.into.Keeps(obj) {
			return true
		}
	}
	return false
}

// transformed returns the object as all ranges store it.
func (r *reading) transformed(obj any) (any, error) {
	if transform := r.Transformer(); transform != nil {
		return transform(obj)
	}
	return obj, nil
}

// passLocked makes all portions take the step to version unless they have it already.
func (r *reading) passLocked(version string, step func(p *portion) error) error {
	if r.passed++; version != "" {
		r.version = version
	}
	var errs []error
	for p := range r.portions {
		if p.takes(version) {
			errs = append(errs, step(p))
		}
	}
	r.feed.mergeLocked()
	return errors.Join(errs...)
}

// mergeLocked moves ranges to the oldest reading, if that receives all events of these ranges, has
// passed on something since their reading listed, and has not seen more than theirs.
func (f *feed) mergeLocked() {
	if len(f.readings) < 2 {
		return
	}
	to := f.readings[0]
	for _, r := range slices.Clone(f.readings[1:]) {
		if r.listing || !cache.IsDone(r) || to.listing || !cache.IsDone(to) {
			continue
		}
		if r.older != to {
			r.older, r.had = to, to.passed
		}
		if r.had == to.passed || !present.Reached(r.version, to.version) {
			continue
		}
		klog.FromContext(r.ctx).V(2).Info("Ranges go over to what the process reads already", "resource", f.key.resource, "ranges", len(r.portions), "version", r.version)
		for p := range r.portions {
			p.reading = to
			if p.since == "" || present.Reached(r.version, p.since) {
				p.since = r.version // or it is ahead of its reading
			}
			to.portions[p] = struct{}{}
		}
		clear(r.portions)
		f.endLocked(r)
	}
}
