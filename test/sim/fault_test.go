package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// fault makes one thing go wrong.
func (w *world) fault() {
	if len(w.stocks) > 0 && w.random.IntN(4) == 0 {
		w.stocks[w.random.IntN(len(w.stocks))].fault()
		return
	}
	s := w.seats[w.random.IntN(len(w.seats))]
	p := s.process
	if p == nil || p.over() {
		return
	}
	d := upTo(w.random, 25*time.Second)
	if w.enforced && w.random.IntN(5) == 0 {
		d += 10 * time.Second // Usually long enough for a takeover.
		w.notef("%s is paused with its clock for %v", p.name(), d)
		p.suspend(d, upTo(w.random, 5*time.Second), true)
		return
	}
	n := 1 + w.random.IntN(4)
	verbs := [][]string{nil, {"create", "update"}, {"get"}, {"watch"}, {"list", "watch"}}[w.random.IntN(5)]
	kind := w.random.IntN(26)
	switch kind {
	case 0, 1:
		w.notef("%s is killed", p.name())
		p.kill()
		s.start = time.Now().Add(d)
	case 2, 3, 4:
		late := time.Duration(w.random.IntN(2)) * upTo(w.random, 10*time.Second)
		w.notef("%s is suspended for %v, timers late by %v", p.name(), d, late)
		p.suspend(d, late, false)
	case 5:
		w.notef("%s is cut off for %v: %v", p.name(), d, verbs)
		p.client.Block(verbs...)
		time.AfterFunc(d, func() { p.client.Unblock() })
	case 6:
		w.notef("%s loses %d requests: %v", p.name(), n, verbs)
		p.client.Drop(n, verbs...)
	case 7:
		w.notef("%s loses %d answers: %v", p.name(), n, verbs)
		p.client.DropReply(n, verbs...)
	case 8:
		out, back := upTo(w.random, 8*time.Second), upTo(w.random, 8*time.Second)
		w.notef("%s: %d requests are slow, %v out and %v back: %v", p.name(), n, out, back, verbs)
		p.client.Delay(n, out, back, verbs...)
	case 9:
		n *= 3
		w.notef("%s meets %d conflicts", p.name(), n)
		p.client.Conflict(n)
	case 10:
		w.notef("%s sees events %v late, for %v", p.name(), d/3, d)
		p.client.LagWatch(d / 3)
		time.AfterFunc(d, func() { p.client.LagWatch(0) })
	case 11:
		w.notef("all watches break")
		w.store.BreakWatches()
	case 12:
		w.flap(d)
	case 13, 14:
		w.notef("%s is stopped, and started again after %v", p.name(), d)
		p.stop()
		s.start = time.Now().Add(d)
	case 15:
		w.notef("the API server fails for %s for %v", p.name(), d)
		p.fail(0.3)
		time.AfterFunc(d, func() { p.fail(0) })
	case 16, 17, 18, 19:
		w.replan()
	case 20, 21:
		w.drain(s)
	case 22:
		w.misplan()
	default:
		w.tamper()
	}
}

// pause freezes a machine whose member works, clock included, long enough for others to take over,
// and then resumes it.
func (w *world) pause() {
	live := w.live()
	w.mu.Lock()
	live = slices.DeleteFunc(live, func(p *process) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Values(w.works)), func(works []*work) bool {
			return slices.ContainsFunc(works, func(k *work) bool { return k.process == p })
		})
	})
	w.mu.Unlock()
	if len(live) == 0 {
		return
	}
	p := live[w.random.IntN(len(live))]
	w.notef("%s is paused with its clock", p.name())
	p.suspend(25*time.Second, 0, true)
	for range 27 {
		time.Sleep(time.Second) // virtual
		w.tend()
	}
}

// flap makes a member come and go.
func (w *world) flap(d time.Duration) {
	if w.random.IntN(2) == 0 && len(w.seats) > 5 {
		return
	}
	s := w.newSeat(fmt.Sprintf("z%d", len(w.seats)))
	w.notef("%s flaps for %v", s.name, d/2)
	w.launch(s)
	p := s.process
	p.unwanted.Store(true)
	end := [...]func(){p.stop, p.kill}[w.random.IntN(2)]
	time.AfterFunc(d/2, func() {
		if !w.healed.Load() {
			end()
		}
	})
}
