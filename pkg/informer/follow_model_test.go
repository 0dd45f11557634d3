package informer

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

var (
	followRuns = flag.Int("follow.runs", 150, "how many seeds TestFollowersModel tries")
	followSeed = flag.Uint64("follow.seed", 0, "the one seed that TestFollowersModel tries; 0 takes new ones")
)

// TestFollowersModel compares the ranges of a process with everything that the API server has ever
// held. Meanwhile informers of everything, whole and slim, come and go in the same process; watches
// lag, end and expire; lists arrive as lists, or as watches that already contain changes; ranges
// are warmed, started, refreshed and ended, even during such a list; and the server starts or stops
// filtering.
func TestFollowersModel(t *testing.T) {
	runs := *followRuns
	if *followSeed != 0 {
		runs = 1
	}
	var total modelRun
	streamed, changed, bookmarks, behind := 0, 0, 0, 0
	for range runs {
		seed := *followSeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := newModelRun(t, rand.New(rand.NewPCG(seed, 0)))
				run.execute()
				total.attached += run.attached
				total.notified += run.notified
				total.together += run.together
				total.parted += run.parted
				total.carried += run.carried
				total.whole += run.whole
				total.midstream += run.midstream
				total.followedSlim += run.followedSlim
				streamed += run.history.streamed
				changed += run.history.changed
				total.refreshed += run.refreshed
				bookmarks += run.history.bookmarks
				behind += run.history.behind
			})
		})
		if !ok {
			return // One failing seed is enough.
		}
	}
	t.Logf("%d runs: %d times a range was seen to follow, %d times to read with others, %d notifications, %d slim copies and %d whole objects beside them in the end",
		runs, total.attached, total.together, total.notified, total.carried, total.whole)
	t.Logf("%d times a range was seen to follow the informer of slim copies", total.followedSlim)
	t.Logf("%d lists in the form of watches, with %d changes in them; %d ranges began in the middle of one that others read",
		streamed, changed, total.midstream)
	t.Logf("%d caches were found to be of the present when they were asked; %d short watches ended with a bookmark, %d of them behind",
		total.refreshed, bookmarks, behind)
	if *followSeed == 0 && (total.refreshed < runs || bookmarks < runs/3 || behind < runs/10 ||
		total.attached < runs || total.together < runs || total.followedSlim < runs ||
		total.notified < runs || total.parted < runs/10 || total.carried < runs || total.whole < runs || streamed < runs || changed < runs || total.midstream < runs/2) {
		t.Errorf("hardly anything was followed, read together, streamed, or refreshed")
	}
}

// modelRun is one seeded run of TestFollowersModel.
type modelRun struct {
	t       *testing.T
	random  *rand.Rand
	history *historyServer
	// server answers probes.
	server   *apiServer
	pool     *Pool
	all      *Factory
	slim     *subject
	ranges   []shard.Range
	subjects map[int]*subject
	// attached counts how often a look found a follower, together how often it found a range that
	// read with others. notified counts calls of handlers.
	attached, together, notified int
	// followedSlim counts how often a look found a range that followed the informer of slim copies.
	followedSlim int
	// parted counts how often ranges continued after the informer of everything had gone.
	parted int
	// carried counts slim copies, and whole counts objects that a range and the informer of slim
	// copies shared.
	carried, whole int
	// midstream counts ranges that began while the process was reading a list in the form of a
	// watch.
	midstream int
	// refreshed counts the calls of Refresh that succeeded.
	refreshed int
}

// subject is a range, or the informer of slim copies, with a handler that keeps count.
type subject struct {
	t        *testing.T
	run      *modelRun
	factory  *Factory
	informer cache.SharedIndexInformer
	holds    func(any) bool
	slim     bool
	began    int
	started  bool

	mu      sync.Mutex
	known   map[string]string
	seen    map[string]int
	version int
	over    bool
	calls   int
}

// TestListAfterAForgottenWatch has an API server without streaming lists forget the version that
// informers are at, while they are behind. An informer that got its first list in pages must not
// ask for that version again.
func TestListAfterAForgottenWatch(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				run := newModelRun(t, rand.New(rand.NewPCG(seed, 0)))
				h := run.history
				h.set(func() { h.streams, h.down, h.lag = false, false, 2*time.Second })
				for range 60 {
					h.write()
				}
				run.begin(0)
				run.toggleSlim()
				time.Sleep(time.Minute) // virtual
				for range 20 {
					h.write()
				}
				h.disturb(true)
				time.Sleep(5 * time.Minute) // virtual: longer than reflectors back off
				run.look()
				run.checkEnd()
			})
		})
	}
}

func newModelRun(t *testing.T, random *rand.Rand) *modelRun {
	h := newHistoryServer(random)
	server := &apiServer{shards: random.IntN(4) == 0}
	pool := newTestPool(t, server, clock.RealClock{}, 0)
	pool.config.Metadata = h
	pool.config.Transform = func(obj any) (any, error) {
		m, err := meta.Accessor(obj)
		notes := m.GetAnnotations()
		if err != nil || notes["seen"] != "" && notes[inStream] == "" || notes["seen"] == "twice" {
			t.Errorf("%s is transformed once more than it should be, or %v", informertest.Name(obj), err)
			return obj, nil
		}
		seen := map[string]string{"seen": "once"}
		switch {
		case notes["seen"] != "":
			seen["seen"] = "twice"
		case notes[inStream] != "":
			seen[inStream] = "yes"
		}
		m.SetAnnotations(seen)
		return obj, nil
	}
	h.streams = random.IntN(4) > 0
	pool.config.Slim = map[schema.GroupVersionResource]func(any) any{configMaps: informertest.SlimConfigMap}
	ranges, err := shard.EqualRanges(3)
	if err != nil {
		t.Fatal(err)
	}
	return &modelRun{t: t, random: random, history: h, server: server, pool: pool, ranges: ranges, subjects: map[int]*subject{}}
}

// execute takes random steps, lets random time pass and checks after each. At the end it lets the
// system settle and checks everything.
func (run *modelRun) execute() {
	for range run.roll(10) {
		run.history.write()
	}
	for range 40 + run.roll(60) {
		if run.t.Failed() {
			break
		}
		run.step()
		switch run.roll(8) {
		case 0:
			time.Sleep(run.draw(20 * time.Second)) // virtual
		case 1, 2, 3:
			time.Sleep(run.draw(time.Second)) // virtual
		case 4, 5:
			time.Sleep(run.draw(30 * time.Millisecond)) // virtual
		}
		run.look()
	}
	run.history.set(func() { run.history.down, run.history.lag = false, 2*time.Second })
	time.Sleep(listwatch.ProbeFor) // virtual: whoever lists again learns whether the server filters.
	run.history.disturb(true)
	time.Sleep(5 * time.Minute) // virtual: longer than reflectors back off, and many bookmarks.
	run.look()
	run.checkEnd()
}

func (run *modelRun) draw(limit time.Duration) time.Duration {
	run.history.mu.Lock()
	defer run.history.mu.Unlock()
	return run.history.upTo(limit)
}

func (run *modelRun) roll(n int) int {
	run.history.mu.Lock()
	defer run.history.mu.Unlock()
	return run.random.IntN(n)
}

func (run *modelRun) step() {
	h := run.history
	switch run.roll(30) {
	case 0:
		run.toggleWhole()
	case 1, 12:
		run.toggleSlim()
	case 2, 3, 4:
		run.toggleRange(run.roll(len(run.ranges)))
	case 5:
		for i := range run.ranges {
			if run.subjects[i] == nil {
				run.begin(i)
			}
		}
	case 6:
		h.disturb(true)
	case 7:
		h.set(func() { h.brief = h.random.IntN(4) })
		h.disturb(false)
	case 8:
		h.set(func() { h.down = !h.down })
	case 9:
		h.set(func() { h.lag = h.upTo(3 * time.Second) })
	case 10:
		h.set(func() { h.down, h.lag = false, 10*time.Millisecond })
	case 11:
		if run.roll(3) == 0 {
			run.server.set(func(s *apiServer) { s.shards = !s.shards })
			time.Sleep(listwatch.ProbeFor) // virtual
		}
	case 13:
		h.set(func() { h.streams = !h.streams || h.random.IntN(3) > 0 })
	case 14, 15:
		run.joinMidstream()
	case 16, 17:
		run.refresh()
	case 18, 19:
		run.expect()
	default:
		for range 1 + run.roll(4) {
			h.write()
		}
	}
}

// joinMidstream begins a range while the informer of slim copies reads a list in the form of a
// watch, with writes before and after.
func (run *modelRun) joinMidstream() {
	h := run.history
	h.set(func() { h.down, h.lag, h.streams = false, 200*time.Millisecond+h.upTo(3*time.Second), true })
	if run.slim == nil {
		run.toggleSlim()
	} else {
		h.disturb(true)
	}
	streaming := func() (n int) {
		h.set(func() { n = h.streaming })
		return n
	}
	for range 50 {
		if time.Sleep(run.draw(100 * time.Millisecond)); streaming() > 0 { // virtual
			break
		}
	}
	time.Sleep(run.draw(time.Second)) // virtual
	i := run.roll(len(run.ranges))
	if run.subjects[i] != nil {
		run.end(i)
	}
	for range run.roll(3) {
		h.write()
	}
	if streaming() > 0 {
		run.midstream++
	}
	run.begin(i)
	for range run.roll(3) {
		h.write()
	}
}

// refresh calls Refresh of one subject, or of all at the same time.
func (run *modelRun) refresh() {
	subjects := slices.Collect(maps.Values(run.subjects))
	if run.slim != nil {
		subjects = append(subjects, run.slim)
	}
	if len(subjects) > 0 && run.roll(2) == 0 {
		slices.SortFunc(subjects, func(a, s *subject) int { return cmp.Compare(a.began, s.began) })
		subjects = subjects[:1]
	}
	for _, s := range subjects {
		_, asked := run.history.listed()
		go func() {
			ctx, cancel := context.WithTimeout(s.factory.ctx, 20*time.Second)
			defer cancel()
			if s.factory.Refresh(ctx) == nil {
				s.checkSince(asked)
				run.history.set(func() { run.refreshed++ })
			}
		}()
	}
}

// expect has the process expect some of the ranges, sometimes just before the informer of slim copies
// lists.
func (run *modelRun) expect() {
	var expected []shard.Range
	for _, r := range run.ranges {
		if run.roll(3) > 0 {
			expected = append(expected, r)
		}
	}
	run.pool.Expect(expected)
	if run.slim == nil && run.roll(2) == 0 {
		run.toggleSlim()
	} else if run.slim != nil && run.roll(3) == 0 {
		run.history.disturb(true)
	}
}

// slimFollowers returns how many ranges follow the informer of slim copies.
func (run *modelRun) slimFollowers() int {
	s := run.pool.slimOf(configMaps)
	if s == nil {
		return 0
	}
	return s.Ranges()
}

// slimOf returns the informer of slim copies; nil for none.
func (p *Pool) slimOf(gvr schema.GroupVersionResource) *shared {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shared[sharedKey{resource: gvr, slim: true}]
}

func (run *modelRun) toggleWhole() {
	if run.all != nil {
		run.all.Shutdown()
		run.all = nil
		return
	}
	run.all = run.pool.NewFactory(shard.Everything(), nil)
	run.all.reading(configMaps, run.history, &v1.ConfigMap{})
	run.all.StartWithContext(context.WithoutCancel(run.t.Context()))
}

func (run *modelRun) toggleRange(i int) {
	s := run.subjects[i]
	switch {
	case s == nil:
		run.begin(i)
	case !s.started:
		s.start()
	default:
		run.end(i)
	}
}

// begin makes a range and launches it.
func (run *modelRun) begin(i int) {
	s := &subject{
		t: run.t, run: run, factory: run.pool.NewFactory(run.ranges[i], nil), holds: informertest.InRange(run.ranges[i]),
		known: map[string]string{}, seen: map[string]int{},
	}
	s.informer = s.factory.reading(configMaps, run.history, &v1.ConfigMap{})
	run.subjects[i] = s
	run.launch(s)
}

// toggleSlim begins or ends an informer of slim copies of everything.
func (run *modelRun) toggleSlim() {
	if run.slim != nil {
		run.finish(run.slim)
		run.slim = nil
		return
	}
	run.slim = &subject{
		t: run.t, run: run, factory: run.pool.NewFactory(shard.Everything(), nil), holds: func(any) bool { return true }, slim: true,
		known: map[string]string{}, seen: map[string]int{},
	}
	run.slim.informer = run.slim.factory.readingSlim(configMaps, run.history, &v1.ConfigMap{})
	run.launch(run.slim)
}

// launch warms or starts a subject, at random.
func (run *modelRun) launch(s *subject) {
	informertest.MustAdd(run.t, s.informer, s)
	run.history.set(func() { s.began = run.history.version })
	if run.roll(2) == 0 {
		s.start()
	} else {
		ended, cancel := context.WithCancel(run.t.Context())
		cancel()
		_ = s.factory.Warm(ended) // Fills the caches all the same.
	}
	go func() {
		select {
		case <-s.informer.HasSyncedChecker().Done():
			s.checkFresh()
		case <-s.factory.ctx.Done():
		}
	}()
}

func (run *modelRun) end(i int) {
	s := run.subjects[i]
	delete(run.subjects, i)
	run.finish(s)
}

func (run *modelRun) finish(s *subject) {
	s.factory.Shutdown()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	run.notified += s.calls
}

// look checks every subject at a moment when all goroutines are idle.
func (run *modelRun) look() {
	synctest.Wait()
	for _, s := range run.subjects {
		s.look()
	}
	if run.slim != nil {
		run.slim.look()
		run.checkSlim()
	}
	run.attached += run.pool.Followed()[configMaps]
	run.followedSlim += run.slimFollowers()
	for _, n := range run.pool.sharing() {
		if n > 1 {
			run.together += n
		}
	}
}

// checkEnd compares every subject with the present state, and ends them all.
func (run *modelRun) checkEnd() {
	t, h := run.t, run.history
	want := len(run.subjects)
	if !run.server.shards {
		want = min(want, 1) // Ranges read together.
	}
	if run.slim != nil {
		want = 1 // Ranges follow the informer of slim copies even if the server filters.
	}
	if run.all != nil {
		want = 1
		followers := len(run.subjects)
		if run.slim != nil {
			followers++
		}
		if got := run.pool.Followed()[configMaps]; got != followers {
			t.Errorf("%d of %d informers follow", got, followers)
		}
	}
	h.mu.Lock()
	watches, version := len(h.watches), h.version
	h.mu.Unlock()
	if watches != want {
		t.Errorf("%d watches of %d ranges, want %d; slim copies: %t, the server filters: %t, readings of %v", watches, len(run.subjects), want,
			run.slim != nil, run.server.shards, run.pool.sharing())
	}
	for i, s := range run.subjects {
		if !s.informer.HasSynced() {
			t.Errorf("range %d has not synced", i)
		}
		if got, want := s.content(), s.truth(version); !maps.Equal(got, want) {
			t.Errorf("range %d holds %v in the end, want %v", i, got, want)
		}
		s.checkShared(run.all)
	}
	run.checkSlimEnd(version)
	run.part()
	for i := range run.subjects {
		run.end(i)
	}
	run.look()
	if run.slim != nil {
		run.toggleSlim()
	}
	synctest.Wait()
	if left := len(h.watches); left != 0 || len(run.pool.Followed()) != 0 || len(run.pool.sharing()) != 0 {
		t.Errorf("%d watches, %v followers and %d readings left", left, run.pool.Followed(), len(run.pool.sharing()))
	}
}

// checkSlimEnd checks that the informer of slim copies shares every object that a range holds.
func (run *modelRun) checkSlimEnd(version int) {
	if run.slim == nil {
		return
	}
	if got, want := run.slim.content(), run.slim.truth(version); !run.slim.informer.HasSynced() || !maps.Equal(got, want) {
		run.t.Errorf("the informer of slim copies holds %v in the end, synced: %t; want %v", got, run.slim.informer.HasSynced(), want)
	}
	for _, s := range run.subjects {
		for _, obj := range s.informer.GetStore().List() {
			if theirs, _, err := run.slim.informer.GetStore().Get(obj); err != nil || theirs != obj {
				run.t.Errorf("%s is held by a range, and once more in another copy, or %v", informertest.Name(obj), err)
			}
			if len(obj.(*v1.ConfigMap).Data) == 0 {
				run.t.Errorf("a range holds a slim copy of %s", informertest.Name(obj))
			}
			run.whole++
		}
	}
}

// checkSlim checks that the informer of slim copies holds only those objects whole that lie in a
// range which follows it, has joined it, or is expected.
func (run *modelRun) checkSlim() {
	s := run.pool.slimOf(configMaps)
	if s.known.leader.Load() != nil {
		return // It follows.
	}
	wanted := s.Wanted()
	_, now := run.history.listed()
	truth := run.slim.truth(now)
	for key, obj := range run.slim.holding() {
		if len(obj.Data) == 0 {
			run.carried++
			continue
		}
		if truth[key] != obj.ResourceVersion {
			continue // A range that is ahead may have dropped it already.
		}
		if !slices.ContainsFunc(wanted, func(r shard.Range) bool { return r.ContainsNamespace(obj.Namespace) }) {
			run.t.Errorf("%s is held whole, and for no range", informertest.Name(obj))
		}
	}
}

// part ends the informer of everything while objects change. The ranges that followed it must see
// the changes without listing.
func (run *modelRun) part() {
	if run.all == nil {
		return
	}
	h := run.history
	time.Sleep(listwatch.ProbeFor) // virtual: the next reader asks the server whether it filters.
	h.set(func() { h.brief = 0 })  // who begins with a watch that ends at once lists
	h.write()
	run.toggleWhole()
	lists, _ := h.listed()
	for range 5 {
		h.write()
	}
	time.Sleep(time.Minute) // virtual: longer than events take, and bookmarks.
	run.look()
	after, version := h.listed()
	if after != lists {
		run.t.Errorf("%d lists by %d ranges that followed an informer", after-lists, len(run.subjects))
	}
	for i, s := range run.subjects {
		if got, want := s.content(), s.truth(version); !maps.Equal(got, want) {
			run.t.Errorf("range %d holds %v after it was left, want %v", i, got, want)
		}
	}
	run.parted++
}

func (s *subject) start() {
	s.started = true
	s.factory.StartWithContext(context.WithoutCancel(s.t.Context()))
}

func (s *subject) content() map[string]string {
	objects := map[string]string{}
	for key, c := range s.holding() {
		objects[key] = c.ResourceVersion
	}
	return objects
}

func (s *subject) holding() map[string]*v1.ConfigMap {
	objects := map[string]*v1.ConfigMap{}
	for _, obj := range s.informer.GetStore().List() {
		c := obj.(*v1.ConfigMap)
		objects[c.Namespace+"/"+c.Name] = c
	}
	return objects
}

func (s *subject) truth(version int) map[string]string {
	h := s.run.history
	h.mu.Lock()
	defer h.mu.Unlock()
	objects := map[string]string{}
	for key, object := range h.truth(version) {
		if s.holds(object) {
			objects[key] = object.ResourceVersion
		}
	}
	return objects
}

// look checks that the subject holds what the server held at the version that the subject reports,
// and that its handler knows the same.
func (s *subject) look() {
	text := s.informer.LastSyncResourceVersion()
	if text == "" {
		return
	}
	version, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	got := s.content()
	s.checkWhole()
	if want := s.truth(version); !maps.Equal(got, want) {
		s.t.Errorf("at version %d a range holds %v, want %v", version, got, want)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < s.version {
		s.t.Errorf("a range has gone from version %d back to %d", s.version, version)
	}
	s.version = version
	_, shared := s.informer.(*view) // whose handlers wait until it is known to be fresh
	if s.started && (!shared || s.informer.HasSynced()) && !maps.Equal(got, s.known) {
		s.t.Errorf("at version %d a handler knows of %v, and the range holds %v", version, s.known, got)
	}
	if !s.started && s.calls > 0 {
		s.t.Error("a handler was told something before the start")
	}
}

// checkWhole checks that a range holds no slim copies.
func (s *subject) checkWhole() {
	for key, obj := range s.holding() {
		if !s.slim && len(obj.Data) == 0 {
			s.t.Errorf("a range holds a slim copy of %s", key)
		}
	}
}

// checkFresh checks that a subject that has synced holds the state from when it began, or a later
// one.
func (s *subject) checkFresh() { s.checkSince(s.began) }

// checkSince checks that the subject holds the state at a version, or a later one.
func (s *subject) checkSince(least int) {
	got := s.content()
	h := s.run.history
	h.mu.Lock()
	now := h.version
	h.mu.Unlock()
	for version := least; version <= now; version++ {
		if maps.Equal(got, s.truth(version)) {
			return
		}
	}
	s.t.Errorf("a range that was to have seen version %d holds %v, but there was %v", least, got, s.truth(least))
}

// checkShared checks that a range that follows shares all objects with the informer of everything,
// and is at the same version.
func (s *subject) checkShared(whole *Factory) {
	if whole == nil {
		return
	}
	i := whole.informers[sharedKey{resource: configMaps}]
	if mine, theirs := s.informer.LastSyncResourceVersion(), i.LastSyncResourceVersion(); mine != theirs {
		s.t.Errorf("a range that follows is at version %s, and the other informer at %s", mine, theirs)
	}
	all := i.GetStore()
	for _, obj := range s.informer.GetStore().List() {
		if theirs, _, err := all.Get(obj); err != nil || theirs != obj {
			s.t.Errorf("%s is held twice, or %v", informertest.Name(obj), err)
		}
	}
}

// note checks what holds for every notification.
func (s *subject) note(obj any) (key string, version int) {
	c := obj.(*v1.ConfigMap)
	if s.over {
		s.t.Errorf("%s was told after Shutdown", informertest.Name(obj))
	}
	if !s.holds(obj) {
		s.t.Errorf("%s is outside the range", informertest.Name(obj))
	}
	if !s.slim && len(c.Data) == 0 {
		s.t.Errorf("the handler of a range receives a slim copy of %s", informertest.Name(obj))
	}
	s.calls++
	key = c.Namespace + "/" + c.Name
	if _, err := fmt.Sscan(c.ResourceVersion, &version); err != nil {
		s.t.Error(err)
	}
	return key, version
}

// OnAdd implements cache.ResourceEventHandler.
func (s *subject) OnAdd(obj any, _ bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, version := s.note(obj)
	if had, there := s.known[key]; there || version <= s.seen[key] {
		s.t.Errorf("added %s, and had %q, and had seen version %d", informertest.Name(obj), had, s.seen[key])
	}
	s.known[key], s.seen[key] = strconv.Itoa(version), version
}

// OnUpdate implements cache.ResourceEventHandler.
func (s *subject) OnUpdate(old, obj any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key, version := s.note(obj)
	if !strings.HasSuffix(informertest.Name(old), "@"+s.known[key]) || version <= s.seen[key] {
		s.t.Errorf("updated %s to %s, and had %q", informertest.Name(old), informertest.Name(obj), s.known[key])
	}
	s.known[key], s.seen[key] = strconv.Itoa(version), version
}

// OnDelete implements cache.ResourceEventHandler.
func (s *subject) OnDelete(obj any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	key, version := s.note(obj)
	if _, there := s.known[key]; !there || version < s.seen[key] {
		s.t.Errorf("deleted %s, and knew of %v", informertest.Name(obj), slices.Sorted(maps.Keys(s.known)))
	}
	delete(s.known, key)
	s.seen[key] = version
}
