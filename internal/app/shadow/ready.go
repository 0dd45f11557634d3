package shadow

import (
	"sync"
	"time"
)

// ready is when the caches were first full, and what had been read by then.
type ready struct {
	mu   sync.Mutex
	when time.Time
	read Read
}

// at returns the first moment at which full was true, zero if it never was, and what had been read
// by then.
func (r *ready) at(full bool, now time.Time, read Read) (time.Time, Read) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if full && r.when.IsZero() {
		r.when, r.read = now, read
	}
	return r.when, r.read
}
