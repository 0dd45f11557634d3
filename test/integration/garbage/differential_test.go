package garbage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var (
	graphs  = flag.Int("graphs", 0, "number of random graphs in TestSameAsStock and TestMembersSameAsStock; 0 skips them")
	seed    = flag.Uint64("seed", 0, "seed of the graphs; 0 for a new one each time")
	batches = flag.Int("batches", 3, "batches in which the graphs are created")
	rounds  = flag.Int("rounds", 3, "deletions in each graph")
	calm    = flag.Bool("calm", false, "do not disturb the collectors")
)

// quiet is how long nothing may change before all work counts as done.
const quiet = 1200 * time.Millisecond

// TestSameAsStock creates the same random owner graphs in two sandboxes, and deletes the same
// objects in both. It compares the result of the collectors of ranges and of the cluster in one
// with that of upstream's collector in the other. Meanwhile it kills, stops and restarts the
// collectors of the first, and changes their ranges.
//
// It deletes one object of a graph at a time, because after two concurrent deletions even stock's
// result is a matter of luck.
func TestSameAsStock(t *testing.T) {
	if *graphs == 0 {
		t.Skip("left out: takes minutes on a busy machine, make long RUN=garbage")
	}
	a := newAPI(t)
	prepare(t, a)
	total := tally{}
	for batch := range *batches {
		b := newPair(t, batch, a, a, (*graphs+*batches-1) / *batches, total)
		b.start = func() parts { return newFleet(t, b.fleet, b.random.Uint64()) }
		b.run()
	}
	t.Logf("%v", total)
	total.require(t, "Background", "Foreground", "Orphan", "order", "gone", "kept", "late")
}

// prepare defines the custom kinds of the graphs, but for the late ones.
func prepare(t *testing.T, apis ...*api) {
	t.Helper()
	for _, a := range apis {
		a.undefine(t, lateThing)
		a.undefine(t, lateGlobe)
		a.define(t, thing)
		a.define(t, globe)
	}
}

// newPair returns sandboxes in two APIs, which may be the same, and the graphs of one batch.
func newPair(t *testing.T, batch int, stock, fleet *api, count int, total tally) *pair {
	t.Helper()
	if *seed == 0 {
		*seed = rand.Uint64N(1 << 32)
	}
	t.Logf("To repeat: -seed=%d -graphs=%d -batches=%d -rounds=%d", *seed, *graphs, *batches, *rounds)
	b := &pair{T: t, random: rand.New(rand.NewPCG(*seed, uint64(batch))), late: batch == 0, tally: total}
	b.stock = newSandbox(t, stock, fmt.Sprintf("stock%d", batch), 8)
	b.fleet = newSandbox(t, fleet, fmt.Sprintf("fleet%d", batch), 8)
	for i := range count {
		b.graphs = append(b.graphs, newGraph(b.random, fmt.Sprintf("g%d", i), len(b.stock.spaces), b.late && i%4 == 0))
	}
	return b
}

// tally counts the cases that were tried.
type tally map[string]int

// require fails the test for each case that was never tried.
func (c tally) require(t *testing.T, cases ...string) {
	t.Helper()
	for _, what := range cases {
		if c[what] == 0 {
			t.Errorf("no case of %q was judged", what)
		}
	}
}

// parts are the collectors that are compared with stock's.
type parts interface {
	// begin starts all collectors after stop, which ends them.
	begin()
	stop()
	// disturb kills, stops, starts and moves collectors until await is called. They may take time
	// to recover from that.
	disturb() (await func())
	// working returns nil once all collectors work.
	working(context.Context) error
}

// graph is the objects of one random graph, with their owners.
type graph struct {
	name    string
	objects map[id][]edge
	// late are objects of kinds that are defined later.
	late map[id][]edge
	// order has the ids in a fixed order, which a map lacks.
	order []id
}

func newGraph(random *rand.Rand, name string, spaces int, late bool) *graph {
	g := &graph{name: name, objects: map[id][]edge{}, late: map[id][]edge{}}
	home, away := random.IntN(spaces), random.IntN(spaces)
	for i := range 3 + random.IntN(7) {
		k := []kind{configMap, thing, clusterRole, globe}[pick(random, 4, 2, 2, 1)]
		if late && random.IntN(3) == 0 {
			k = []kind{lateThing, lateGlobe}[random.IntN(2)]
		}
		o := id{k.name, -1, fmt.Sprintf("%s-%d", name, i)}
		if k.namespaced {
			o.space = home
			if random.IntN(8) == 0 {
				o.space = away
			}
		}
		g.order = append(g.order, o)
	}
	tree := random.IntN(3) == 0 // where upstream promises an order
	for i, o := range g.order {
		var edges []edge
		owned := map[int]bool{}
		if tree && !late {
			if e := (edge{owner: g.order[ownerInTree(random, g.order, i)], blocking: true}); i > 0 && sees(o, e.owner) {
				edges = append(edges, e)
			}
			g.objects[o] = edges
			continue
		}
		for range pick(random, 3, 5, 3, 1) {
			owner := random.IntN(len(g.order))
			if i > 0 && random.IntN(4) > 0 {
				owner = random.IntN(i) // otherwise most objects would be in circles
			}
			if owned[owner] || owner == i && random.IntN(4) > 0 {
				continue
			}
			owned[owner] = true
			edges = append(edges, newEdge(random, o, g.order[owner]))
		}
		if o.space < 0 && slices.ContainsFunc(edges, namesNamespaced) {
			// It is never deleted. If an object that it blocks is deleted with an owner that it
			// does not block, stock makes it a matter of luck whether that waits: it is deleted in
			// the foreground if a collector looks at it before the owner is gone.
			for i := range edges {
				edges[i].blocking = false
			}
		}
		if isLate(o) {
			g.late[o] = edges
		} else {
			g.objects[o] = edges
		}
	}
	return g
}

// namesNamespaced reports whether the reference names the owner as namespaced.
func namesNamespaced(e edge) bool { return (e.owner.space >= 0) != (e.fault == wrongKind) }

// ownerInTree returns the number of a possible owner for object i that comes before it, if there is
// one.
func ownerInTree(random *rand.Rand, order []id, i int) int {
	for range 10 * min(i, 1) {
		if owner := random.IntN(i); sees(order[i], order[owner]) {
			return owner
		}
	}
	return 0
}

func isLate(o id) bool { return strings.HasPrefix(o.kind, "Late") }

func newEdge(random *rand.Rand, dependent, owner id) edge {
	e := edge{owner: owner, blocking: random.IntN(3) > 0}
	e.fault = []fault{sound, wrongUID, wrongName, wrongKind, never}[pick(random, 20, 1, 1, 1, 1)]
	if e.fault == never && isLate(owner) {
		// It would keep an object without other owners until the kind is defined. Then the object
		// gets its owners, and it is a matter of luck whether it is deleted before.
		e.fault = sound
	}
	if dependent.space < 0 && owner.space >= 0 {
		// With stock it would block the owner for ever; here it does not: see
		// docs/design/garbage.md.
		e.blocking, e.fault = false, sound
	}
	return e
}

// pick returns a random index of weights, by weight.
func pick(random *rand.Rand, weights ...int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	at := random.IntN(sum)
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	return 0
}

// pair is two sandboxes with the same graphs.
type pair struct {
	*testing.T
	random       *rand.Rand
	stock, fleet *sandbox
	graphs       []*graph
	late         bool
	tally        tally
	// start starts the collectors of the fleet's sandbox.
	start    func() parts
	upstream *collector
	members  parts
	// given are objects that got owners while collectors ran.
	given map[id]bool
}

func (b *pair) kinds() []kind {
	if b.late {
		return kinds
	}
	return kinds[:4]
}

func (b *pair) run() {
	ctx := b.Context()
	objects := map[id][]edge{}
	for _, g := range b.graphs {
		maps.Copy(objects, g.objects)
	}
	for _, sb := range []*sandbox{b.stock, b.fleet} {
		if err := sb.make(ctx, objects); err != nil {
			b.Fatal(err)
		}
	}
	defer b.clear()
	deletions := b.watch()
	b.upstream = startStock(b.T, b.stock)
	defer func() { b.upstream.stop() }()
	b.members = b.start()
	defer b.members.stop()
	// Before the collectors have begun, both sandboxes are the same.
	b.stock.busy(b.T)
	b.fleet.busy(b.T)
	now := b.settle("at the start", nil)
	for round := range *rounds {
		if b.late && round == 1 {
			b.define()
			now = b.settle("after late kinds have been defined", nil)
		}
		ops := b.deletions(now)
		disturbed := b.members.disturb()
		if err := harness.InParallel(len(ops), func(i int) error {
			return errors.Join(b.stock.delete(ctx, ops[i].id, ops[i].policy), b.fleet.delete(ctx, ops[i].id, ops[i].policy))
		}); err != nil {
			b.Error(err)
		}
		disturbed()
		before := now
		now = b.settle(fmt.Sprintf("after deletion %d", round+1), ops)
		for o := range before {
			if _, there := now[o]; !there {
				b.tally["gone"]++
			} else {
				b.tally["kept"]++
			}
		}
		b.judgeOrder(ops, before, deletions)
	}
}

// define adds the late kinds and their objects, with those that refer to them.
func (b *pair) define() {
	ctx := b.Context()
	late := map[id][]edge{}
	for _, g := range b.graphs {
		maps.Copy(late, g.late)
	}
	for _, sb := range []*sandbox{b.stock, b.fleet} {
		sb.define(b.T, lateThing)
		sb.define(b.T, lateGlobe)
	}
	all := slices.Collect(maps.Keys(late))
	for _, sb := range []*sandbox{b.stock, b.fleet} {
		// Nothing may be collected before it has all of its owners, so late objects are created
		// without any.
		if err := harness.InParallel(len(all), func(i int) error { _, err := sb.create(ctx, all[i], nil); return err }); err != nil {
			b.Fatal(err)
		}
	}
	// What a collector does before it knows the late kinds is up to chance.
	for _, sb := range []*sandbox{b.stock, b.fleet} {
		sb.collects(b.T, [][2]kind{{lateThing, configMap}, {lateThing, clusterRole}, {lateGlobe, clusterRole}})
	}
	now := b.settle("with late objects that have no owners", nil)
	var owned []id
	for _, g := range b.graphs {
		for _, o := range g.order {
			edges := append(slices.Clone(g.late[o]), g.objects[o]...)
			if _, there := now[o]; there && slices.ContainsFunc(edges, func(e edge) bool { return isLate(e.owner) || isLate(o) }) && !now[o].dying {
				owned = append(owned, o)
			}
		}
	}
	byID := map[id][]edge{}
	for _, g := range b.graphs {
		maps.Copy(byID, g.objects)
		maps.Copy(byID, g.late)
	}
	b.tally["late"] += len(owned)
	b.given = map[id]bool{}
	for _, o := range owned {
		b.given[o] = true
	}
	for _, sb := range []*sandbox{b.stock, b.fleet} {
		// In order along each graph, because an owner whose own owners are gone may be deleted at
		// any time.
		for _, o := range owned {
			var there []edge
			for _, e := range byID[o] {
				if _, ok := now[e.owner]; ok && e.fault == sound {
					there = append(there, e)
				}
			}
			if err := sb.own(ctx, o, there); err != nil && !apierrors.IsNotFound(err) {
				b.Fatal(err)
			}
		}
	}
}

// TestDecided checks that only waiting objects are compared without some of their owners, and only
// without those that wait or are gone.
func TestDecided(t *testing.T) {
	waiting := object{dying: true, finalizers: metav1.FinalizerDeleteDependents}
	with := func(o object, owners string) object { o.owners = owners; return o }
	s := state{
		n: {}, k: {}, y: waiting,
		x:                           with(waiting, "ClusterRole/k ConfigMap/gone ConfigMap/n ConfigMap/y"),
		named(thing, 0, "alive"):    {owners: "ConfigMap/gone ConfigMap/y"},
		named(thing, 0, "held"):     {dying: true, finalizers: held, owners: "ConfigMap/y"},
		named(thing, 1, "no owner"): with(waiting, "ConfigMap/n"),
	}
	want := maps.Clone(s)
	want[x] = with(waiting, "ClusterRole/k ConfigMap/n")
	want[named(thing, 1, "no owner")] = waiting
	if diff := differences(want, s.decided()); len(diff) > 0 {
		t.Error(strings.Join(diff, "\n"))
	}
}

// op is a deletion.
type op struct {
	id
	policy metav1.DeletionPropagation
	graph  *graph
}

// deletions chooses one existing object in each graph.
func (b *pair) deletions(now state) (ops []op) {
	policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
	for _, g := range b.graphs {
		var there []id
		for _, o := range g.order {
			if obj, ok := now[o]; ok && !obj.dying {
				there = append(there, o)
			}
		}
		if len(there) == 0 {
			continue
		}
		// Prefer objects with dependents.
		chosen := there[b.random.IntN(len(there))]
		if owners := slices.DeleteFunc(slices.Clone(there), func(o id) bool { return !g.owns(o, now) }); len(owners) > 0 && b.random.IntN(4) > 0 {
			chosen = owners[b.random.IntN(len(owners))]
		}
		o := op{chosen, policies[b.random.IntN(len(policies))], g}
		if o.policy == metav1.DeletePropagationOrphan && g.ownsAbove(chosen) {
			o.policy = metav1.DeletePropagationBackground // stock would remove the reference, here it stays: see docs/design/garbage.md
		}
		b.tally[string(o.policy)]++
		ops = append(ops, o)
	}
	return ops
}

// edges returns the edges of existing objects.
func (g *graph) edges(now state) map[id][]edge {
	all := map[id][]edge{}
	for _, of := range []map[id][]edge{g.objects, g.late} {
		for o, edges := range of {
			if _, there := now[o]; there {
				all[o] = edges
			}
		}
	}
	return all
}

func (g *graph) owns(owner id, now state) bool {
	for _, edges := range g.edges(now) {
		if slices.ContainsFunc(edges, func(e edge) bool { return e.owner == owner && e.fault == sound }) {
			return true
		}
	}
	return false
}

// ownsAbove reports whether a cluster-scoped object names the namespaced owner.
func (g *graph) ownsAbove(owner id) bool {
	for o, edges := range g.objects {
		if owner.space >= 0 && o.space < 0 && slices.ContainsFunc(edges, func(e edge) bool { return e.owner == owner }) {
			return true
		}
	}
	return false
}

// standstill is how long nothing may change in sandboxes that differ before the difference counts
// as final.
const standstill = 4 * quiet

// settle returns the state of both sandboxes once all collectors work, and it is the same and stays
// so. If both stand still and differ only by chance, it restarts all collectors once. Then they
// must agree.
func (b *pair) settle(when string, ops []op) state {
	b.Helper()
	var diff []string
	var last [2]state
	restarted := false
	since := time.Now()
	what := when + " the sandboxes become and stay the same"
	_, err := harness.Await(b.Context(), *patience, what, func(ctx context.Context) error {
		want, stockErr := b.stock.state(ctx, b.kinds())
		got, fleetErr := b.fleet.state(ctx, b.kinds())
		if err := errors.Join(stockErr, fleetErr); err != nil {
			return fmt.Errorf("%w: %w", harness.ErrGiveUp, err)
		}
		working := b.members.working(ctx)
		if working != nil || !maps.Equal(want, last[0]) || !maps.Equal(got, last[1]) {
			last, since = [2]state{want, got}, time.Now()
		}
		if working != nil {
			return working
		}
		want, got = want.decided(), got.decided()
		if diff = differences(want, got); len(diff) == 0 {
			if same := time.Since(since); same <= quiet {
				return fmt.Errorf("they have been the same for %v", same)
			}
			return nil
		}
		if !restarted && time.Since(since) > standstill && b.byChance(want, got) {
			b.Logf("%s %d objects differ by chance, so all collectors restart: %v", when, len(diff), diff)
			b.tally["begun anew"]++
			b.upstream.stop()
			b.members.stop()
			b.upstream = startStock(b.T, b.stock)
			b.members.begin()
			restarted, since = true, time.Now()
		}
		return fmt.Errorf("they differ in %d objects", len(diff))
	})
	if err == nil {
		return last[0]
	}
	for _, d := range diff {
		b.Errorf("%s: %s\n%s", when, d, b.story(d, ops))
	}
	b.Fatal(err)
	return nil
}

// byChance reports whether two sandboxes differ only in objects whose fate depends on when a
// collector started, and in their dependents. Stock may do either with such objects, depending on
// whether it restarted:
//
//   - Cluster-scoped objects with a reference to a namespaced kind. Upstream does not decide about
//     such an object, and does not look again when it loses the reference, unless its collector
//     restarts after that ([TestUndecidedUntilRestart]).
//   - Objects that stock keeps, and that got an owner which already waited in the foreground.
//     Nobody looks at them before that owner is gone, unless a collector restarts
//     ([TestOwnerThatWaitsAlready]).
func (b *pair) byChance(want, got state) bool {
	chance := map[id]bool{}
	for _, g := range b.graphs {
		g.depending(chance, func(o id, e edge) bool {
			return o.space < 0 && namesNamespaced(e) || b.given[o] && e.fault == sound && waitsFor(o, e.owner, want)
		})
	}
	for _, s := range []state{want, got} {
		for o := range s {
			if want[o] != got[o] && !chance[o] {
				return false
			}
		}
	}
	return true
}

// waitsFor reports whether an object that nobody has deleted exists beside an owner that waits for
// its dependents.
func waitsFor(dependent, owner id, now state) bool {
	obj, there := now[dependent]
	return there && !obj.dying && now[owner].dying && strings.Contains(now[owner].finalizers, metav1.FinalizerDeleteDependents)
}

// depending adds the objects with a matching edge, and their dependents.
func (g *graph) depending(all map[id]bool, sort func(id, edge) bool) {
	for range g.order { // no path is longer
		for _, of := range []map[id][]edge{g.objects, g.late} {
			for o, edges := range of {
				all[o] = all[o] || slices.ContainsFunc(edges, func(e edge) bool { return all[e.owner] || sort(o, e) })
			}
		}
	}
}

// story describes the graph of a difference.
func (b *pair) story(diff string, ops []op) string {
	for _, g := range b.graphs {
		if !slices.ContainsFunc(g.order, func(o id) bool { return strings.HasPrefix(diff, fmt.Sprint(o)) }) {
			continue
		}
		lines := []string{"graph " + g.name}
		for _, o := range g.order {
			lines = append(lines, fmt.Sprintf("  %v owned by %+v", o, append(slices.Clone(g.objects[o]), g.late[o]...)))
		}
		for _, op := range ops {
			if op.graph == g {
				lines = append(lines, fmt.Sprintf("  deleted: %v, %s", op.id, op.policy))
			}
		}
		return strings.Join(lines, "\n")
	}
	return ""
}

// fleet is the collectors of ranges and of the cluster, in two processes.
type fleet struct {
	random    *rand.Rand
	processes [2]*process
	ranges    []shard.Range
	ofRange   []*collector
	ofCluster *collector
}

func newFleet(t *testing.T, sb *sandbox, seed uint64) *fleet {
	f := &fleet{random: rand.New(rand.NewPCG(seed, 0))}
	for i := range f.processes {
		f.processes[i] = newProcess(t, sb)
	}
	f.begin()
	return f
}

// begin implements parts.
func (f *fleet) begin() {
	f.recut()
	f.ofCluster = f.process().ofCluster()
}

func (f *fleet) process() *process { return f.processes[f.random.IntN(len(f.processes))] }

// recut replaces the ranges with 1 to 4 new ones.
func (f *fleet) recut() {
	f.ranges, f.ofRange = equalRanges(f.processes[0].T, 1<<f.random.IntN(3)), nil
	for _, r := range f.ranges {
		f.ofRange = append(f.ofRange, f.process().ofRange(r))
	}
}

// stop implements parts.
func (f *fleet) stop() {
	for _, c := range f.ofRange {
		c.stop()
	}
	f.ofCluster.stop()
}

// working implements parts.
func (f *fleet) working(context.Context) error { return nil }

// disturb implements parts. All collectors run when await returns.
func (f *fleet) disturb() (await func()) {
	return atRandom(f.random, 1+f.random.IntN(3), 150*time.Millisecond, f.disturbOnce)
}

// atRandom calls disturb some times at random moments of the work, each within a time after the
// last, unless the collectors are not to be disturbed. await returns after the last call.
func atRandom(random *rand.Rand, times int, within time.Duration, disturb func()) (await func()) {
	if *calm {
		return func() {}
	}
	var disturbing sync.WaitGroup
	disturbing.Go(func() {
		for range times {
			<-time.After(time.Duration(random.Int64N(int64(within))))
			disturb()
		}
	})
	return disturbing.Wait
}

func (f *fleet) disturbOnce() {
	end := (*collector).stop
	if f.random.IntN(2) == 0 {
		end = (*collector).kill
	}
	switch pick(f.random, 2, 2, 1) {
	case 0: // move a range
		i := f.random.IntN(len(f.ranges))
		end(f.ofRange[i])
		f.ofRange[i] = f.process().ofRange(f.ranges[i])
	case 1: // move the cluster's
		end(f.ofCluster)
		f.ofCluster = f.process().ofCluster()
	case 2: // change the plan
		for _, c := range f.ofRange {
			end(c)
		}
		f.recut()
	}
}

// deletionLog has the versions at which objects were deleted.
type deletionLog struct {
	mu       sync.Mutex
	versions map[id]string
}

// watch records deletions in the fleet's sandbox until the end of the test.
func (b *pair) watch() *deletionLog {
	e := &deletionLog{versions: map[id]string{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	var watching sync.WaitGroup
	for _, k := range kinds[:4] {
		resource := b.fleet.metadata.Resource(k.gvr)
		list, err := resource.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			b.Fatal(err)
		}
		w, err := toolswatch.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = label + "=" + b.fleet.name
				return resource.Watch(ctx, o)
			},
		})
		if err != nil {
			b.Fatal(err)
		}
		watching.Go(func() {
			defer w.Stop()
			for {
				select {
				case event, ok := <-w.ResultChan():
					if !ok {
						return
					}
					if m, isMeta := event.Object.(*metav1.PartialObjectMetadata); isMeta && event.Type == watch.Deleted {
						e.mu.Lock()
						e.versions[b.fleet.id(k, m)] = m.ResourceVersion
						e.mu.Unlock()
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	b.Cleanup(func() { cancel(); watching.Wait() })
	return e
}

// judgeOrder requires that a dependent that blocks an owner deleted in the foreground is deleted
// before it. That holds along trees. If a dependent has several owners, upstream may unblock one of
// them, in case there is a circle.
func (b *pair) judgeOrder(ops []op, before state, deletions *deletionLog) {
	deletions.mu.Lock()
	defer deletions.mu.Unlock()
	for _, op := range ops {
		if op.policy != metav1.DeletePropagationForeground {
			continue
		}
		if op.graph.circle(op.id, before) {
			continue
		}
		branches := op.graph.branches(before)
		for below := []id{op.id}; len(below) > 0; below = below[1:] {
			owner := below[0]
			for _, o := range branches[owner] {
				last, gone := deletions.versions[owner]
				first, alsoGone := deletions.versions[o]
				if gone && alsoGone {
					b.tally["order"]++
					if order, err := resourceversion.CompareResourceVersion(first, last); err != nil || order >= 0 {
						b.Errorf("%v was deleted at version %s, before its dependent %v at %s; %v was deleted in the foreground\n%s", owner, last, o, first, op.id, b.story(fmt.Sprint(o), ops))
					}
				}
				below = append(below, o)
			}
		}
	}
}

// branches returns the dependents of each owner that have no other owner, block it, and whose own
// dependents all have no other owner either.
func (g *graph) branches(now state) map[id][]id {
	alone := func(o id, edges []edge) bool {
		return len(edges) == 1 && edges[0].owner != o && len(strings.Fields(now[o].owners)) == 1
	}
	shares := map[id]bool{} // owners of dependents with several owners
	for o, edges := range g.edges(now) {
		for _, e := range edges {
			shares[e.owner] = shares[e.owner] || !alone(o, edges)
		}
	}
	branches := map[id][]id{}
	for o, edges := range g.edges(now) {
		if !alone(o, edges) || shares[o] || edges[0].fault != sound || !edges[0].blocking || !sees(o, edges[0].owner) {
			continue
		}
		if _, there := now[edges[0].owner]; there {
			branches[edges[0].owner] = append(branches[edges[0].owner], o)
		}
	}
	return branches
}

// circle reports whether an object depends on itself.
func (g *graph) circle(root id, now state) bool {
	edges := g.edges(now)
	visited := map[id]bool{}
	for above := []id{root}; len(above) > 0; above = above[1:] {
		for _, e := range edges[above[0]] {
			if e.owner == root {
				return true
			}
			if !visited[e.owner] {
				visited[e.owner] = true
				above = append(above, e.owner)
			}
		}
	}
	return false
}

// sees reports whether an object can be owned by another one.
func sees(dependent, owner id) bool { return owner.space < 0 || owner.space == dependent.space }

// clear removes all finalizers, so that kinds can be removed.
func (b *pair) clear() {
	ctx := context.WithoutCancel(b.Context())
	for _, sb := range []*sandbox{b.stock, b.fleet} {
		for _, k := range b.kinds() {
			list, err := sb.metadata.Resource(k.gvr).List(ctx, metav1.ListOptions{LabelSelector: label + "=" + sb.name})
			if err != nil {
				continue // a kind that was never defined
			}
			_ = harness.InParallel(len(list.Items), func(i int) error {
				m := &list.Items[i]
				r := sb.metadata.Resource(k.gvr).Namespace(m.Namespace)
				if len(m.Finalizers) > 0 {
					_, _ = r.Patch(ctx, m.Name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				}
				_ = r.Delete(ctx, m.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
				return nil
			})
		}
	}
}
