package queues

import (
	"maps"
	"slices"
	"sync"
	"time"

	k8smetrics "k8s.io/component-base/metrics"
)

// work is the work in progress of the queues of one name in one group, or in none.
type work struct {
	name  string
	group *Group

	mu sync.Mutex
	// began is when each item in work left its queue.
	began []time.Time
	// added counts the items that have come, and ended those that are done.
	added, ended uint64
	// settling are the callers that wait for a number of items to be done.
	settling []settling
}

// settling is closed once that many items are done.
type settling struct {
	ended uint64
	done  chan struct{}
}

func (w *work) add() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.added++
}

// settled returns a channel that is closed once everything that was added before is done.
func (w *work) settled() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := settling{ended: w.added, done: make(chan struct{})}
	if w.ended >= s.ended {
		close(s.done)
	} else {
		w.settling = append(w.settling, s)
	}
	return s.done
}

// endedLocked records that one more item is done.
func (w *work) endedLocked() {
	w.ended++
	w.settling = slices.DeleteFunc(w.settling, func(s settling) bool {
		if w.ended < s.ended {
			return false
		}
		close(s.done)
		return true
	})
}

func (w *work) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = append(w.began, time.Now())
}

// end records that an item took that many seconds. It is the item that began that long ago: which
// of several that began at the same moment does not matter.
func (w *work) end(seconds float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endedLocked()
	if len(w.began) == 0 {
		return
	}
	at := time.Now().Add(-time.Duration(seconds * float64(time.Second)))
	nearest := 0
	for i, began := range w.began {
		if began.Sub(at).Abs() < w.began[nearest].Sub(at).Abs() {
			nearest = i
		}
	}
	w.began = slices.Delete(w.began, nearest, nearest+1)
}

// drop implements part.
func (w *work) drop() { works.forget(w) }

// ages returns how many seconds all work in progress has taken, together, and the longest of these.
func (w *work) ages() (all, longest float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, began := range w.began {
		age := time.Since(began).Seconds()
		all, longest = all+age, max(longest, age)
	}
	return all, longest
}

// works is all work that counts. A name stays for good, as a series does.
var works = &workByName{of: map[string]map[*Group]*work{}}

var (
	unfinished = description("unfinished_work_seconds", "How many seconds of work has done that "+
		"is in progress and hasn't been observed by work_duration. Large "+
		"values indicate stuck threads. One can deduce the number of stuck "+
		"threads by observing the rate at which this increases.")
	longest = description("longest_running_processor_seconds", "How many seconds has the longest running processor for workqueue been running.")
)

func description(name, help string) *k8smetrics.Desc {
	return k8smetrics.NewDesc("workqueue_"+name, help, byName, nil, k8smetrics.BETA, "")
}

// workByName is the collector of the two families that say how old work is. It computes them on
// request.
type workByName struct {
	k8smetrics.BaseStableCollector

	mu sync.Mutex
	of map[string]map[*Group]*work
}

// join returns the work of a name in the group of the calling goroutine.
func (a *workByName) join(name string) *work {
	w, made := a.find(name, groups.current())
	if made {
		belong(w)
	}
	return w
}

func (a *workByName) find(name string, g *Group) (w *work, made bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[name] == nil {
		a.of[name] = map[*Group]*work{}
	}
	if w = a.of[name][g]; w == nil {
		w, made = &work{name: name, group: g}, true
		a.of[name][g] = w
	}
	return w, made
}

// get returns the work of a name in a group, or nil.
func (a *workByName) get(name string, g *Group) *work {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[name][g]
}

func (a *workByName) forget(w *work) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of[w.name], w.group)
}

// all is the work of each name at this moment.
func (a *workByName) all() map[string][]*work {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string][]*work{}
	for name, of := range a.of {
		all[name] = slices.Collect(maps.Values(of))
	}
	return all
}

// DescribeWithStability implements k8smetrics.StableCollector.
func (*workByName) DescribeWithStability(to chan<- *k8smetrics.Desc) { to <- unfinished; to <- longest }

// CollectWithStability implements k8smetrics.StableCollector.
func (a *workByName) CollectWithStability(to chan<- k8smetrics.Metric) {
	for name, of := range a.all() {
		sum, most := 0.0, 0.0
		for _, w := range of {
			all, longest := w.ages()
			sum, most = sum+all, max(most, longest)
		}
		to <- k8smetrics.NewLazyConstMetric(unfinished, k8smetrics.GaugeValue, sum, name)
		to <- k8smetrics.NewLazyConstMetric(longest, k8smetrics.GaugeValue, most, name)
	}
}
