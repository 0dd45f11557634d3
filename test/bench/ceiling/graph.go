package ceiling

import "sync"

// graph records which requests wait for which.
type graph struct {
	from int
	// ready has the requests of each controller that may be sent. It is closed after its last one.
	ready map[string]chan int
	// follows is set if there is an earlier request for the same object.
	follows []bool

	requests []request
	// mu guards the fields below.
	mu      sync.Mutex
	waiting []int   // how many answers a request still waits for
	after   [][]int // which requests wait for this one
	left    map[string]int
}

// newGraph orders requests[from:to]; those before have been answered.
func newGraph(requests []request, from, to int) *graph {
	g := &graph{
		from: from, requests: requests, ready: map[string]chan int{}, left: map[string]int{},
		follows: make([]bool, to-from), waiting: make([]int, to-from), after: make([][]int, to-from),
	}
	last, makers, places := map[string]int{}, map[string]int{}, map[string]int{}
	for i := from; i < to; i++ {
		q := requests[i]
		g.left[q.controller]++
		needs := map[int]bool{}
		if before, ok := last[q.object]; ok {
			needs[before] = true
			g.follows[i-from] = true
		}
		if account, ok := places[q.account]; ok && q.account != "" {
			needs[account] = true
		}
		for _, m := range q.mentions {
			if maker, ok := makers[m.uid]; ok {
				needs[maker] = true
			}
		}
		for need := range needs {
			g.after[need-from] = append(g.after[need-from], i)
		}
		g.waiting[i-from] = len(needs)
		last[q.object] = i
		if q.verb == "create" {
			places[q.object] = i
		}
		if q.uid != "" {
			makers[q.uid] = i
		}
	}
	for controller, n := range g.left {
		g.ready[controller] = make(chan int, n)
	}
	for i, n := range g.waiting {
		if n == 0 {
			g.ready[requests[from+i].controller] <- from + i
		}
	}
	return g
}

// done records that a request has been answered, successfully or not.
func (g *graph) done(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, next := range g.after[i-g.from] {
		if g.waiting[next-g.from]--; g.waiting[next-g.from] == 0 {
			g.ready[g.requests[next].controller] <- next // there is room for all of them
		}
	}
	controller := g.requests[i].controller
	if g.left[controller]--; g.left[controller] == 0 {
		close(g.ready[controller])
	}
}
