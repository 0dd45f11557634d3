package fleet

import (
	"context"
	"sync"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// mostLists is how many lists a member makes at a time: as many as the default number of concurrent
// handoffs, so that a handoff waits for no list.
const mostLists = 4

// lists makes callers that look at all Leases at about the same time share a list. A member that
// takes a hundred shards at once would otherwise read everything a hundred times. Each caller gets
// the result of a list that began after its call. The zero value is ready to use, and its methods
// are safe for concurrent use.
type lists struct {
	mu sync.Mutex
	// next is the list that has not begun; nil if nobody waits for one. It begins when a list under
	// way has ended.
	next     *sharedList
	underWay int
}

// sharedList is a list with waiting callers. Its answer may be read once done is closed.
type sharedList struct {
	done    chan struct{}
	seen    []election.Observation
	err     error
	waiting int
	stop    context.CancelFunc
}

// read returns the result of a list that began after the call, or an error if ctx has ended. list
// makes the request; start runs it on its own goroutine. The observations must not be changed.
func (l *lists) read(
	ctx context.Context, start func(func()), list func(context.Context) ([]election.Observation, error),
) ([]election.Observation, error) {
	l.mu.Lock()
	if l.next == nil {
		l.next = &sharedList{done: make(chan struct{})}
	}
	mine := l.next
	mine.waiting++
	if l.underWay < mostLists {
		l.underWay++
		l.next = nil
		start(func() { l.carryOut(context.WithoutCancel(ctx), mine, list) })
	}
	l.mu.Unlock()
	select {
	case <-mine.done:
		return mine.seen, mine.err
	case <-ctx.Done():
		l.leave(mine)
		return nil, context.Cause(ctx)
	}
}

// carryOut makes a list, and further ones as long as somebody waits.
func (l *lists) carryOut(ctx context.Context, present *sharedList, list func(context.Context) ([]election.Observation, error)) {
	for {
		l.mu.Lock()
		for present == nil || present.waiting == 0 {
			if l.next == nil {
				l.underWay--
				l.mu.Unlock()
				return
			}
			present, l.next = l.next, nil
		}
		listing, stop := context.WithCancel(ctx)
		present.stop = stop
		l.mu.Unlock()
		present.seen, present.err = list(listing)
		stop()
		close(present.done)
		present = nil
	}
}

// leave takes one caller off a list, and ends the list if nobody else waits for it.
func (l *lists) leave(s *sharedList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.waiting--; s.waiting == 0 && s.stop != nil {
		s.stop()
	}
}
