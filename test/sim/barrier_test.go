package sim

import (
	"errors"
	"sync"
)

var errKilled = errors.New("the process was killed")

// barrier separates a process from everything else. While it is closed, the process is suspended or
// dead: nothing passes in either direction, and none of its timers fires.
type barrier struct {
	mu      sync.Mutex
	closed  chan struct{} // nil if open
	dead    bool
	waiting []func()
}

// close closes the barrier.
func (b *barrier) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed == nil {
		b.closed = make(chan struct{})
	}
}

// kill closes the barrier until bury.
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

// bury releases the goroutines of a dead process. Whatever they try returns an error.
func (b *barrier) bury() {
	b.mu.Lock()
	if b.closed == nil {
		b.mu.Unlock()
		return
	}
	b.release()
}

// release opens the barrier and unlocks it. The caller has locked it.
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

// pass waits until the barrier is open. It returns an error if the process was killed.
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

// whenOpen calls f as soon as the barrier is open.
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

// isClosed reports whether the barrier is closed.
func (b *barrier) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed != nil
}
