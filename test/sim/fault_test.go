package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// fault makes one thing go wrong.
func (sim *simulation) fault() {
	if len(sim.stocks) > 0 && sim.random.IntN(4) == 0 {
		sim.stocks[sim.random.IntN(len(sim.stocks))].fault()
		return
	}
	s := sim.seats[sim.random.IntN(len(sim.seats))]
	p := s.process
	if p == nil || p.over() {
		return
	}
	d := upTo(sim.random, 25*time.Second)
	if sim.enforced && sim.random.IntN(5) == 0 {
		d += 10 * time.Second // Usually long enough for a takeover.
		sim.notef("%s is paused with its clock for %v", p.name(), d)
		p.suspend(d, upTo(sim.random, 5*time.Second), true)
		return
	}
	n := 1 + sim.random.IntN(4)
	verbs := [][]string{nil, {"create", "update"}, {"get"}, {"watch"}, {"list", "watch"}}[sim.random.IntN(5)]
	kind := sim.random.IntN(26)
	switch kind {
	case 0, 1:
		sim.notef("%s is killed", p.name())
		p.kill()
		s.start = time.Now().Add(d)
	case 2, 3, 4:
		late := time.Duration(sim.random.IntN(2)) * upTo(sim.random, 10*time.Second)
		sim.notef("%s is suspended for %v, timers late by %v", p.name(), d, late)
		p.suspend(d, late, false)
	case 5:
		sim.notef("%s is cut off for %v: %v", p.name(), d, verbs)
		p.client.Block(verbs...)
		time.AfterFunc(d, func() { p.client.Unblock() })
	case 6:
		sim.notef("%s loses %d requests: %v", p.name(), n, verbs)
		p.client.Drop(n, verbs...)
	case 7:
		sim.notef("%s loses %d answers: %v", p.name(), n, verbs)
		p.client.DropReply(n, verbs...)
	case 8:
		out, back := upTo(sim.random, 8*time.Second), upTo(sim.random, 8*time.Second)
		sim.notef("%s: %d requests are slow, %v out and %v back: %v", p.name(), n, out, back, verbs)
		p.client.Delay(n, out, back, verbs...)
	case 9:
		n *= 3
		sim.notef("%s meets %d conflicts", p.name(), n)
		p.client.Conflict(n)
	case 10:
		sim.notef("%s sees events %v late, for %v", p.name(), d/3, d)
		p.client.LagWatch(d / 3)
		time.AfterFunc(d, func() { p.client.LagWatch(0) })
	case 11:
		sim.notef("all watches break")
		sim.store.BreakWatches()
	case 12:
		sim.flap(d)
	case 13, 14:
		sim.notef("%s is stopped, and started again after %v", p.name(), d)
		p.stop()
		s.start = time.Now().Add(d)
	case 15:
		sim.notef("the API server fails for %s for %v", p.name(), d)
		p.fail(0.3)
		time.AfterFunc(d, func() { p.fail(0) })
	case 16, 17, 18, 19:
		sim.replan()
	case 20, 21:
		sim.drain(s)
	case 22:
		sim.misplan()
	default:
		sim.tamper()
	}
}

// pause freezes a machine whose member works, clock included, long enough for others to take over,
// and then resumes it.
func (sim *simulation) pause() {
	live := sim.live()
	sim.mu.Lock()
	live = slices.DeleteFunc(live, func(p *process) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Values(sim.works)), func(works []*work) bool {
			return slices.ContainsFunc(works, func(k *work) bool { return k.process == p })
		})
	})
	sim.mu.Unlock()
	if len(live) == 0 {
		return
	}
	p := live[sim.random.IntN(len(live))]
	sim.notef("%s is paused with its clock", p.name())
	p.suspend(25*time.Second, 0, true)
	for range 27 {
		time.Sleep(time.Second) // virtual
		sim.tend()
	}
}

// flap makes a member come and go.
func (sim *simulation) flap(d time.Duration) {
	if sim.random.IntN(2) == 0 && len(sim.seats) > 5 {
		return
	}
	s := sim.newSeat(fmt.Sprintf("z%d", len(sim.seats)))
	sim.notef("%s flaps for %v", s.name, d/2)
	sim.launch(s)
	p := s.process
	p.unwanted.Store(true)
	end := [...]func(){p.stop, p.kill}[sim.random.IntN(2)]
	time.AfterFunc(d/2, func() {
		if !sim.healed.Load() {
			end()
		}
	})
}
