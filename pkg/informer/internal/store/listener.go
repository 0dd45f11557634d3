package store

import (
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// notification is a pending call of a handler.
type notification struct {
	kind    notificationKind
	old     any
	new     any
	initial bool
}

type notificationKind uint8

const (
	added notificationKind = iota
	updated
	deleted
)

// listener delivers notifications to one handler, in order. It has a goroutine only while there is
// something to deliver. It implements cache.ResourceEventHandlerRegistration.
type listener struct {
	name    string
	handler cache.ResourceEventHandler
	logger  klog.Logger
	// resync is the period after which the handler receives every object again; 0 for never.
	resync time.Duration
	// dormant keeps the informer from sending it anything. The informer's mu guards it.
	dormant bool

	mu      sync.Mutex
	queue   []notification
	running bool
	closed  bool
	// initial counts notifications of the initial list that are queued or being delivered; upstream
	// says that the informer has synced.
	initial  int
	upstream bool
	timer    *time.Timer

	synced chan struct{}
	// finished is closed once the listener is closed and no delivery is in progress.
	finished chan struct{}
}

func newListener(name string, handler cache.ResourceEventHandler, logger klog.Logger, resync time.Duration) *listener {
	return &listener{
		name:     name,
		handler:  handler,
		logger:   logger,
		resync:   resync,
		synced:   make(chan struct{}),
		finished: make(chan struct{}),
	}
}

// enqueue adds a notification. It never blocks on the handler.
func (l *listener) enqueue(n notification) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if n.initial {
		l.initial++
	}
	l.queue = append(l.queue, n)
	l.deliverLocked()
}

func (l *listener) deliverLocked() {
	if !l.running && len(l.queue) > 0 {
		l.running = true
		go l.deliver()
	}
}

// deliver calls the handler until the queue is empty or the listener is closed.
func (l *listener) deliver() {
	for {
		batch, ok := l.take()
		if !ok {
			return
		}
		for i := range batch {
			if l.isClosed() {
				break
			}
			l.call(batch[i])
			if batch[i].initial {
				l.initialDelivered()
			}
			batch[i] = notification{} // releases the objects
		}
	}
}

// take returns all that is queued, or marks the delivery goroutine as ended and returns false.
func (l *listener) take() ([]notification, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.queue) == 0 {
		l.running = false
		l.queue = nil
		if l.closed {
			close(l.finished)
		}
		return nil, false
	}
	batch := l.queue
	l.queue = nil
	return batch, true
}

func (l *listener) call(n notification) {
	defer utilruntime.HandleCrashWithLogger(l.logger)
	switch n.kind {
	case added:
		l.handler.OnAdd(n.new, n.initial)
	case updated:
		l.handler.OnUpdate(n.old, n.new)
	case deleted:
		l.handler.OnDelete(n.old)
	}
}

func (l *listener) initialDelivered() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.initial--
	l.checkSyncedLocked()
}

// upstreamSynced records that the informer has synced and that every notification of its initial
// list has been enqueued.
func (l *listener) upstreamSynced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.upstream = true
	l.checkSyncedLocked()
}

func (l *listener) checkSyncedLocked() {
	if !l.upstream || l.initial > 0 {
		return
	}
	select {
	case <-l.synced:
	default:
		close(l.synced)
	}
}

// close stops deliveries. It does not wait for a call of the handler that is in progress; wait on
// finished for that.
func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	if !l.running {
		close(l.finished)
	}
}

func (l *listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// startResync calls fire each resync period until the listener is closed.
func (l *listener) startResync(fire func()) {
	if l.resync <= 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.timer != nil {
		return
	}
	l.timer = time.AfterFunc(l.resync, func() {
		fire()
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.closed {
			l.timer.Reset(l.resync)
		}
	})
}

// HasSynced implements cache.ResourceEventHandlerRegistration.
func (l *listener) HasSynced() bool { return cache.IsDone(l) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (l *listener) HasSyncedChecker() cache.DoneChecker { return l }

// Name implements cache.DoneChecker.
func (l *listener) Name() string { return l.name }

// Done implements cache.DoneChecker.
func (l *listener) Done() <-chan struct{} { return l.synced }

// ShutdownChan lets cache.ShutDownEventHandler wait for the handler's last call.
func (l *listener) ShutdownChan() <-chan struct{} { return l.finished }
