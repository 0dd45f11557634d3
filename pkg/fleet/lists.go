package fleet

import (
	"context"
	"sync"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// mostLists is how many lists a member makes at a time: as many as shards are handed over at a time
// by default, so that these wait for nobody.
const mostLists = 4

// lists has those that look at all Leases at about the same time share a list, where there are many
// of them: a member that takes a hundred shards at once would read everything a hundred times. A
// call returns what a list has shown that began after the call. The zero value is ready to use, and
// its methods are safe for concurrent use.
type lists struct {
	mu sync.Mutex
	// next is the list that has not begun; nil if nobody waits for one. It begins when one of those
	// under way has ended.
	next     *sharedList
	underWay int
}

// sharedList is a list that somebody waits for. Its answer may be read once done is closed.
type sharedList struct {
	done    chan struct{}
	seen    []election.Observation
	err     error
	waiting int
	stop    context.CancelFunc
}

// read returns what a list has shown that began after the call, or that ctx has ended. list makes
// one; start runs it on a goroutine of its own. The observations must not be changed.
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

// carryOut makes a list, and others for as long as somebody waits for one.
func (l *lists) carryOut(ctx context.Context, present *sharedList, list func(context.Context) ([]election.Observation, error)) {
	for {
		l.mu.Lock()
		if present == nil || present.waiting == 0 {
			l.underWay--
			l.mu.Unlock()
			return
		}
		listing, stop := context.WithCancel(ctx)
		present.stop = stop
		l.mu.Unlock()
		present.seen, present.err = list(listing)
		stop()
		close(present.done)
		l.mu.Lock()
		present, l.next = l.next, nil
		l.mu.Unlock()
	}
}

// leave ends a list that nobody waits for any more.
func (l *lists) leave(s *sharedList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.waiting--; s.waiting == 0 && s.stop != nil {
		s.stop()
	}
}
