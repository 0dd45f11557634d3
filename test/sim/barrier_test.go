package sim

import (
	"errors"
	"sync"
)

var errKilled = errors.New("the process was killed")

// barrier is what stands between a process and the world. While it is closed, the process is
// suspended or dead: nothing goes in or out, and no timer of its fires.
type barrier struct {
	mu      sync.Mutex
	closed  chan struct{} // nil if open
	dead    bool
	waiting []func()
}

// close shuts the barrier.
func (b *barrier) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		b.closed = make(chan struct{})
	}
}

// kill shuts it until bury.
func (b *barrier) kill() {
	b.close()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead = true
}

// open lets everything pass that has waited. A dead process stays dead.
func (b *barrier) open() {
	b.mu.Lock()
	if b.dead || b.closed == nil {
		b.mu.Unlock()
		return
	}
	b.release()
}

// bury lets the goroutines of a dead process go, with an error for whatever they try.
func (b *barrier) bury() {
	b.mu.Lock()
	if b.closed == nil {
		b.mu.Unlock()
		return
	}
	b.release()
}

// release opens the barrier, which is locked, and unlocks it.
func (b *barrier) release() {
	close(b.closed)
	b.closed = nil
	waiting := b.waiting
	b.waiting = nil
	b.mu.Unlock()
	for _, f := range waiting {
		f()
	}
}

// pass waits until it is open. It returns an error if the process was killed.
func (b *barrier) pass() error {
	for {
		b.mu.Lock()
		closed, dead := b.closed, b.dead
		b.mu.Unlock()
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

// whenOpen calls f now, or as soon as it is open.
func (b *barrier) whenOpen(f func()) {
	b.mu.Lock()
	if b.closed != nil {
		b.waiting = append(b.waiting, f)
		b.mu.Unlock()
		return
	}
	b.mu.Unlock()
	f()
}

// isClosed reports whether something would have to wait.
func (b *barrier) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed != nil
}
