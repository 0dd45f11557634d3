package sim

import (
	"errors"
	"sync"
)

var errKilled = errors.New("the process was killed")

// gate is what stands between a process and the world. While it is closed, the process is suspended or dead: nothing goes
// in or out, and no timer of its fires.
type gate struct {
	mu      sync.Mutex
	closed  chan struct{} // nil if open
	dead    bool
	waiting []func()
}

// close shuts the gate.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed == nil {
		g.closed = make(chan struct{})
	}
}

// kill shuts it until bury.
func (g *gate) kill() {
	g.close()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = true
}

// open lets everything pass that has waited. A dead process stays dead.
func (g *gate) open() {
	g.mu.Lock()
	if g.dead || g.closed == nil {
		g.mu.Unlock()
		return
	}
	g.release()
}

// bury lets the goroutines of a dead process go, with an error for whatever they try.
func (g *gate) bury() {
	g.mu.Lock()
	if g.closed == nil {
		g.mu.Unlock()
		return
	}
	g.release()
}

// release opens the gate, which is locked, and unlocks it.
func (g *gate) release() {
	close(g.closed)
	g.closed = nil
	waiting := g.waiting
	g.waiting = nil
	g.mu.Unlock()
	for _, f := range waiting {
		f()
	}
}

// pass waits until the gate is open. It returns an error if the process was killed.
func (g *gate) pass() error {
	for {
		g.mu.Lock()
		closed, dead := g.closed, g.dead
		g.mu.Unlock()
		switch {
		case closed != nil:
			<-closed
		case dead:
			return errKilled
		default:
			return nil
		}
	}
}

// whenOpen calls f now, or as soon as the gate is open.
func (g *gate) whenOpen(f func()) {
	g.mu.Lock()
	if g.closed != nil {
		g.waiting = append(g.waiting, f)
		g.mu.Unlock()
		return
	}
	g.mu.Unlock()
	f()
}
