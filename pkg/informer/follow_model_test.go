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

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

var (
	followRuns = flag.Int("follow.runs", 150, "how many seeds TestFollowersModel tries")
	followSeed = flag.Uint64("follow.seed", 0, "the one seed that TestFollowersModel tries; 0 takes new ones")
)

// TestFollowersModel holds ranges of a process against all that the API server ever had, while
// informers of everything, whole and in slim copies, come and go in the same process, watches lag,
// end and expire, lists come whole or as watches in which there are changes already, ranges are
// warmed, started, refreshed and ended, also in the middle of such a list, and the server comes to
// say that it filters, or not.
func TestFollowersModel(t *testing.T) {
	runs := *followRuns
	if *followSeed != 0 {
		runs = 1
	}
	var total voyage
	streamed, changed, bookmarks, behind := 0, 0, 0, 0
	for range runs {
		seed := *followSeed
		if seed == 0 {
			seed = rand.Uint64()
		}
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newVoyage(t, rand.New(rand.NewPCG(seed, 0)))
				v.sail()
				total.attached += v.attached
				total.notified += v.notified
				total.together += v.together
				total.parted += v.parted
				total.carried += v.carried
				total.whole += v.whole
				total.midstream += v.midstream
				streamed += v.harbour.streamed
				changed += v.harbour.changed
				total.refreshed += v.refreshed
				bookmarks += v.harbour.bookmarks
				behind += v.harbour.behind
			})
		})
		if !ok {
			return // One is enough to look at.
		}
	}
	t.Logf("%d runs: %d times a range was seen to follow, %d times to read with others, %d notifications, %d slim copies and %d whole objects beside them in the end",
		runs, total.attached, total.together, total.notified, total.carried, total.whole)
	t.Logf("%d lists in the form of watches, with %d changes in them; %d ranges began in the middle of one that others read",
		streamed, changed, total.midstream)
	t.Logf("%d caches were found to be of the present when they were asked; %d short watches ended with a bookmark, %d of them behind",
		total.refreshed, bookmarks, behind)
	if *followSeed == 0 && (total.refreshed < runs || bookmarks < runs/3 || behind < runs/10 ||
		total.attached < runs || total.together < runs ||
		total.notified < runs || total.parted < runs/10 || total.carried < runs || total.whole < runs || streamed < runs || changed < runs || total.midstream < runs/2) {
		t.Errorf("hardly anything was followed, read together, streamed, or refreshed")
	}
}

// voyage is one run.
type voyage struct {
	t       *testing.T
	random  *rand.Rand
	harbour *harbour
	// server answers probes.
	server *apiServer
	pool   *Pool
	all    *Factory
	slim   *boat
	ranges []shard.Range
	boats  map[int]*boat
	// attached counts sightings of followers, together those of ranges in a reading of several,
	// notified calls of handlers.
	attached, together, notified int
	// parted counts informers of everything that ranges went on without.
	parted int
	// carried counts slim copies, and whole those that a range and the informer of slim copies
	// shared.
	carried, whole int
	// midstream counts ranges that began while others of the process read a list in the form of a
	// watch.
	midstream int
	// refreshed counts caches that were found to be of the present when they were asked.
	refreshed int
}

// boat is one range that has been begun.
type boat struct {
	t        *testing.T
	voyage   *voyage
	factory  *Factory
	informer cache.SharedIndexInformer
	holds    func(any) bool
	began    int
	started  bool

	mu      sync.Mutex
	cargo   map[string]string
	seen    map[string]int
	version int
	over    bool
	calls   int
}

// slimConfigMap is a slim copy.
func slimConfigMap(obj any) any {
	return &v1.ConfigMap{ObjectMeta: obj.(*v1.ConfigMap).ObjectMeta}
}

func newVoyage(t *testing.T, random *rand.Rand) *voyage {
	h := newHarbour(random)
	server := &apiServer{shards: random.IntN(4) == 0}
	pool := newTestPool(t, server, clock.RealClock{}, 0)
	pool.config.Metadata = h
	pool.config.Transform = func(obj any) (any, error) {
		m, err := meta.Accessor(obj)
		notes := m.GetAnnotations()
		if err != nil || notes["seen"] != "" && notes[inStream] == "" || notes["seen"] == "twice" {
			t.Errorf("%s is transformed once more than it should be, or %v", name(obj), err)
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
	pool.config.Slim = map[schema.GroupVersionResource]func(any) any{configMaps: slimConfigMap}
	ranges, err := shard.EqualRanges(3)
	if err != nil {
		t.Fatal(err)
	}
	return &voyage{t: t, random: random, harbour: h, server: server, pool: pool, ranges: ranges, boats: map[int]*boat{}}
}

// sail makes the run: something, a while, a look; and in the end all must be right.
func (v *voyage) sail() {
	for range v.roll(10) {
		v.harbour.write()
	}
	for range 40 + v.roll(60) {
		if v.t.Failed() {
			break
		}
		v.step()
		switch v.roll(8) {
		case 0:
			time.Sleep(v.draw(20 * time.Second)) // virtual
		case 1, 2, 3:
			time.Sleep(v.draw(time.Second)) // virtual
		case 4, 5:
			time.Sleep(v.draw(30 * time.Millisecond)) // virtual
		}
		v.look()
	}
	v.harbour.set(func() { v.harbour.down, v.harbour.lag = false, 2*time.Second })
	time.Sleep(probeFor) // virtual: the server's last word is heard by whoever lists anew.
	v.harbour.disturb(true)
	time.Sleep(5 * time.Minute) // virtual: past what reflectors back off by, and many bookmarks.
	v.look()
	v.arrive()
}

func (v *voyage) draw(limit time.Duration) time.Duration {
	v.harbour.mu.Lock()
	defer v.harbour.mu.Unlock()
	return v.harbour.upTo(limit)
}

func (v *voyage) roll(n int) int {
	v.harbour.mu.Lock()
	defer v.harbour.mu.Unlock()
	return v.random.IntN(n)
}

func (v *voyage) step() {
	h := v.harbour
	switch v.roll(28) {
	case 0:
		v.toggleWhole()
	case 1, 12:
		v.toggleSlim()
	case 2, 3, 4:
		v.toggleRange(v.roll(len(v.ranges)))
	case 5:
		for i := range v.ranges {
			if v.boats[i] == nil {
				v.begin(i)
			}
		}
	case 6:
		h.disturb(true)
	case 7:
		h.disturb(false)
	case 8:
		h.set(func() { h.down = !h.down })
	case 9:
		h.set(func() { h.lag = h.upTo(3 * time.Second) })
	case 10:
		h.set(func() { h.down, h.lag = false, 10*time.Millisecond })
	case 11:
		if v.roll(3) == 0 {
			v.server.set(func(s *apiServer) { s.shards = !s.shards })
			time.Sleep(probeFor) // virtual
		}
	case 13:
		h.set(func() { h.streams = !h.streams || h.random.IntN(3) > 0 })
	case 14, 15:
		v.joinMidstream()
	case 16, 17:
		v.refresh()
	default:
		for range 1 + v.roll(4) {
			h.write()
		}
	}
}

// joinMidstream has a range begin while the process reads all in slim copies in a list in the form
// of a watch, and things change.
func (v *voyage) joinMidstream() {
	h := v.harbour
	h.set(func() { h.down, h.lag, h.streams = false, 200*time.Millisecond+h.upTo(3*time.Second), true })
	if v.slim == nil {
		v.toggleSlim()
	} else {
		h.disturb(true)
	}
	streaming := func() (n int) {
		h.set(func() { n = h.streaming })
		return n
	}
	for range 50 {
		if time.Sleep(v.draw(100 * time.Millisecond)); streaming() > 0 { // virtual
			break
		}
	}
	time.Sleep(v.draw(time.Second)) // virtual
	i := v.roll(len(v.ranges))
	if v.boats[i] != nil {
		v.end(i)
	}
	for range v.roll(3) {
		h.write()
	}
	if streaming() > 0 {
		v.midstream++
	}
	v.begin(i)
	for range v.roll(3) {
		h.write()
	}
}

// refresh asks one range, or all of them and the slim copies at one time, to be of the present.
func (v *voyage) refresh() {
	boats := slices.Collect(maps.Values(v.boats))
	if v.slim != nil {
		boats = append(boats, v.slim)
	}
	if len(boats) > 0 && v.roll(2) == 0 {
		slices.SortFunc(boats, func(a, b *boat) int { return cmp.Compare(a.began, b.began) })
		boats = boats[:1]
	}
	for _, b := range boats {
		_, asked := v.harbour.listed()
		go func() {
			ctx, cancel := context.WithTimeout(b.factory.ctx, 20*time.Second)
			defer cancel()
			if b.factory.Refresh(ctx) == nil {
				b.checkSince(asked)
				v.harbour.set(func() { v.refreshed++ })
			}
		}()
	}
}

func (v *voyage) toggleWhole() {
	if v.all != nil {
		v.all.Shutdown()
		v.all = nil
		return
	}
	v.all = v.pool.NewFactory(shard.Everything(), nil, time.Time{})
	v.all.reading(configMaps, v.harbour, &v1.ConfigMap{})
	v.all.StartWithContext(context.WithoutCancel(v.t.Context()))
}

func (v *voyage) toggleRange(i int) {
	b := v.boats[i]
	switch {
	case b == nil:
		v.begin(i)
	case !b.started:
		b.start()
	default:
		v.end(i)
	}
}

// begin warms or starts a range.
func (v *voyage) begin(i int) {
	b := &boat{
		t: v.t, voyage: v, factory: v.pool.NewFactory(v.ranges[i], nil, time.Time{}), holds: inRange(v.ranges[i]),
		cargo: map[string]string{}, seen: map[string]int{},
	}
	b.informer = b.factory.reading(configMaps, v.harbour, &v1.ConfigMap{})
	v.boats[i] = b
	v.launch(b)
}

// toggleSlim begins or ends an informer of slim copies of everything.
func (v *voyage) toggleSlim() {
	if v.slim != nil {
		v.sink(v.slim)
		v.slim = nil
		return
	}
	v.slim = &boat{
		t: v.t, voyage: v, factory: v.pool.NewFactory(shard.Everything(), nil, time.Time{}), holds: func(any) bool { return true },
		cargo: map[string]string{}, seen: map[string]int{},
	}
	v.slim.informer = v.slim.factory.readingSlim(configMaps, v.harbour, &v1.ConfigMap{})
	v.launch(v.slim)
}

// launch warms or starts what has been begun.
func (v *voyage) launch(b *boat) {
	mustAdd(v.t, b.informer, b)
	v.harbour.set(func() { b.began = v.harbour.version })
	if v.roll(2) == 0 {
		b.start()
	} else {
		ended, cancel := context.WithCancel(v.t.Context())
		cancel()
		_ = b.factory.Warm(ended) // Fills the caches all the same.
	}
	go func() {
		select {
		case <-b.informer.HasSyncedChecker().Done():
			b.checkFresh()
		case <-b.factory.ctx.Done():
		}
	}()
}

func (v *voyage) end(i int) {
	b := v.boats[i]
	delete(v.boats, i)
	v.sink(b)
}

func (v *voyage) sink(b *boat) {
	b.factory.Shutdown()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	v.notified += b.calls
}

// look holds every range against the past, at a moment at which nothing happens.
func (v *voyage) look() {
	synctest.Wait()
	for _, b := range v.boats {
		b.look()
	}
	if v.slim != nil {
		v.slim.look()
		v.checkSlim()
	}
	v.attached += v.pool.Followed()[configMaps]
	for _, n := range v.pool.sharing() {
		if n > 1 {
			v.together += n
		}
	}
}

// arrive holds all against the present, and ends all.
func (v *voyage) arrive() {
	t, h := v.t, v.harbour
	want := len(v.boats)
	if !v.server.shards {
		want = min(want, 1) // They read together.
	}
	if v.slim != nil {
		want = 1 // And so does that, whether the server filters or not.
	}
	if v.all != nil {
		want = 1
		followers := len(v.boats)
		if v.slim != nil {
			followers++
		}
		if got := v.pool.Followed()[configMaps]; got != followers {
			t.Errorf("%d of %d informers follow", got, followers)
		}
	}
	h.mu.Lock()
	watches, version := len(h.watches), h.version
	h.mu.Unlock()
	if watches != want {
		t.Errorf("%d watches of %d ranges, want %d; slim copies: %t, the server filters: %t, readings of %v", watches, len(v.boats), want,
			v.slim != nil, v.server.shards, v.pool.sharing())
	}
	for i, b := range v.boats {
		if !b.informer.HasSynced() {
			t.Errorf("range %d has not synced", i)
		}
		if got, want := b.content(), b.truth(version); !maps.Equal(got, want) {
			t.Errorf("range %d holds %v in the end, want %v", i, got, want)
		}
		b.checkShared(v.all)
	}
	v.arriveSlim(version)
	v.part()
	for i := range v.boats {
		v.end(i)
	}
	v.look()
	if v.slim != nil {
		v.toggleSlim()
	}
	synctest.Wait()
	if left := len(h.watches); left != 0 || len(v.pool.Followed()) != 0 || len(v.pool.sharing()) != 0 {
		t.Errorf("%d watches, %v followers and %d readings left", left, v.pool.Followed(), len(v.pool.sharing()))
	}
}

// arriveSlim: what a range holds, the informer of slim copies has from it.
func (v *voyage) arriveSlim(version int) {
	if v.slim == nil {
		return
	}
	if got, want := v.slim.content(), v.slim.truth(version); !v.slim.informer.HasSynced() || !maps.Equal(got, want) {
		v.t.Errorf("the informer of slim copies holds %v in the end, synced: %t; want %v", got, v.slim.informer.HasSynced(), want)
	}
	for _, b := range v.boats {
		for _, obj := range b.informer.GetStore().List() {
			if theirs, _, err := v.slim.informer.GetStore().Get(obj); err != nil || theirs != obj {
				v.t.Errorf("%s is held by a range, and once more in another copy, or %v", name(obj), err)
			}
			if len(obj.(*v1.ConfigMap).Data) == 0 {
				v.t.Errorf("a range holds a slim copy of %s", name(obj))
			}
			v.whole++
		}
	}
}

// checkSlim: whole objects are held for ranges only.
func (v *voyage) checkSlim() {
	v.pool.mu.Lock()
	f := v.pool.feeds[sharedKey{resource: configMaps}]
	v.pool.mu.Unlock()
	if f == nil || !f.carries() {
		return // It follows, or is about to.
	}
	_, now := v.harbour.listed()
	truth := v.slim.truth(now)
	for key, obj := range v.slim.holding() {
		if len(obj.Data) == 0 {
			v.carried++
			continue
		}
		if truth[key] != obj.ResourceVersion {
			continue // A range may be ahead, and have let go of it.
		}
		held := false
		for _, b := range v.boats {
			theirs, _, _ := b.informer.GetStore().Get(obj)
			held = held || theirs == obj
		}
		if !held {
			v.t.Errorf("%s is held whole, and by no range", name(obj))
		}
	}
}

// part ends the informer of everything while things happen: the ranges that followed it are told of
// them, and list nothing.
func (v *voyage) part() {
	if v.all == nil {
		return
	}
	h := v.harbour
	time.Sleep(probeFor) // virtual: the next reader asks the server.
	h.write()
	v.toggleWhole()
	lists, _ := h.listed()
	for range 5 {
		h.write()
	}
	time.Sleep(time.Minute) // virtual: longer than events take, and bookmarks.
	v.look()
	after, version := h.listed()
	if after != lists {
		v.t.Errorf("%d lists by %d ranges that followed an informer", after-lists, len(v.boats))
	}
	for i, b := range v.boats {
		if got, want := b.content(), b.truth(version); !maps.Equal(got, want) {
			v.t.Errorf("range %d holds %v after it was left, want %v", i, got, want)
		}
	}
	v.parted++
}

func (b *boat) start() {
	b.started = true
	b.factory.StartWithContext(context.WithoutCancel(b.t.Context()))
}

func (b *boat) content() map[string]string {
	objects := map[string]string{}
	for key, c := range b.holding() {
		objects[key] = c.ResourceVersion
	}
	return objects
}

func (b *boat) holding() map[string]*v1.ConfigMap {
	objects := map[string]*v1.ConfigMap{}
	for _, obj := range b.informer.GetStore().List() {
		c := obj.(*v1.ConfigMap)
		objects[c.Namespace+"/"+c.Name] = c
	}
	return objects
}

func (b *boat) truth(version int) map[string]string {
	h := b.voyage.harbour
	h.mu.Lock()
	defer h.mu.Unlock()
	objects := map[string]string{}
	for key, object := range h.truth(version) {
		if b.holds(object) {
			objects[key] = object.ResourceVersion
		}
	}
	return objects
}

// look: the range holds what there was at the version that it says it is at, and its handler knows
// that.
func (b *boat) look() {
	text := b.informer.LastSyncResourceVersion()
	if text == "" {
		return
	}
	version, err := strconv.Atoi(text)
	if err != nil {
		b.t.Fatal(err)
	}
	got := b.content()
	if want := b.truth(version); !maps.Equal(got, want) {
		b.t.Errorf("at version %d a range holds %v, want %v", version, got, want)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if version < b.version {
		b.t.Errorf("a range has gone from version %d back to %d", b.version, version)
	}
	b.version = version
	_, shared := b.informer.(*view) // whose handlers wait until it is known to be of the present
	if b.started && (!shared || b.informer.HasSynced()) && !maps.Equal(got, b.cargo) {
		b.t.Errorf("at version %d a handler knows of %v, and the range holds %v", version, b.cargo, got)
	}
	if !b.started && b.calls > 0 {
		b.t.Error("a handler was told something before the start")
	}
}

// checkFresh: what has synced holds what there was when it began, or later.
func (b *boat) checkFresh() { b.checkSince(b.began) }

// checkSince: it holds what there was at a version, or later.
func (b *boat) checkSince(least int) {
	got := b.content()
	h := b.voyage.harbour
	h.mu.Lock()
	now := h.version
	h.mu.Unlock()
	for version := least; version <= now; version++ {
		if maps.Equal(got, b.truth(version)) {
			return
		}
	}
	b.t.Errorf("a range that was to have seen version %d holds %v, but there was %v", least, got, b.truth(least))
}

// checkShared: a range that follows has no objects of its own, and is where the other informer is.
func (b *boat) checkShared(whole *Factory) {
	if whole == nil {
		return
	}
	i := whole.informers[sharedKey{resource: configMaps}]
	if mine, theirs := b.informer.LastSyncResourceVersion(), i.LastSyncResourceVersion(); mine != theirs {
		b.t.Errorf("a range that follows is at version %s, and the other informer at %s", mine, theirs)
	}
	all := i.GetStore()
	for _, obj := range b.informer.GetStore().List() {
		if theirs, _, err := all.Get(obj); err != nil || theirs != obj {
			b.t.Errorf("%s is held twice, or %v", name(obj), err)
		}
	}
}

// note checks what all notifications must be.
func (b *boat) note(obj any) (key string, version int) {
	c := obj.(*v1.ConfigMap)
	if b.over {
		b.t.Errorf("%s was told after Shutdown", name(obj))
	}
	if !b.holds(obj) {
		b.t.Errorf("%s is outside the range", name(obj))
	}
	b.calls++
	key = c.Namespace + "/" + c.Name
	if _, err := fmt.Sscan(c.ResourceVersion, &version); err != nil {
		b.t.Error(err)
	}
	return key, version
}

// OnAdd implements cache.ResourceEventHandler.
func (b *boat) OnAdd(obj any, _ bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key, version := b.note(obj)
	if had, there := b.cargo[key]; there || version <= b.seen[key] {
		b.t.Errorf("added %s, and had %q, and had seen version %d", name(obj), had, b.seen[key])
	}
	b.cargo[key], b.seen[key] = strconv.Itoa(version), version
}

// OnUpdate implements cache.ResourceEventHandler.
func (b *boat) OnUpdate(old, obj any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key, version := b.note(obj)
	if !strings.HasSuffix(name(old), "@"+b.cargo[key]) || version <= b.seen[key] {
		b.t.Errorf("updated %s to %s, and had %q", name(old), name(obj), b.cargo[key])
	}
	b.cargo[key], b.seen[key] = strconv.Itoa(version), version
}

// OnDelete implements cache.ResourceEventHandler.
func (b *boat) OnDelete(obj any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	key, version := b.note(obj)
	if _, there := b.cargo[key]; !there || version < b.seen[key] {
		b.t.Errorf("deleted %s, and knew of %v", name(obj), slices.Sorted(maps.Keys(b.cargo)))
	}
	delete(b.cargo, key)
	b.seen[key] = version
}
