package manager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// errEnded is the error of a Manager that has ended by itself, without an error.
var errEnded = errors.New("the manager has ended by itself")

// shardManager is the Manager of one shard as a controller of the fleet.
//
// The Manager is started once, by Warm or else by Run, and goes on until Run's context ends or
// Close is called. Runnables that must not work before the shard is owned wait; see deferred.
type shardManager struct {
	shard *flotilla.Shard
	inner manager.Manager

	// ctx is the Manager's context; stop ends it.
	ctx  context.Context
	stop context.CancelFunc
	// begin starts the Manager, or makes sure that it never starts.
	begin sync.Once
	// ended is closed once the Manager has ended, with err.
	ended chan struct{}
	err   error
	// owned is closed by Run.
	owned chan struct{}

	mu sync.Mutex
	// warmups has a channel for each runnable with a warmup, closed once the runnable is warm.
	warmups []<-chan struct{}
	// informers are the informers that the Manager has asked for.
	informers []*shardInformer
}

var _ interface {
	flotilla.Runnable
	flotilla.Warmer
	flotilla.Closer
} = &shardManager{}

func newShardManager(ctx context.Context, s *flotilla.Shard) *shardManager {
	m := &shardManager{shard: s, ended: make(chan struct{}), owned: make(chan struct{})}
	m.ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	return m
}

func (m *shardManager) start() {
	m.begin.Do(func() {
		go func() {
			defer close(m.ended)
			m.err = m.inner.Start(m.ctx)
		}()
	})
}

// Warm implements flotilla.Warmer: it starts the Manager, and returns once the caches of all kinds
// that its controllers watch are full.
func (m *shardManager) Warm(ctx context.Context) error {
	m.start()
	m.mu.Lock()
	warmups := m.warmups
	m.mu.Unlock()
	for _, warm := range warmups {
		select {
		case <-warm:
		case <-m.ended:
			return m.failure()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Run implements flotilla.Runnable: it lets the controllers work until ctx ends.
func (m *shardManager) Run(ctx context.Context) error {
	defer m.stop()
	m.start()
	close(m.owned)
	// Starts informers that were asked for after the fleet started the others, before the Manager
	// saw that the shard is owned.
	m.shard.Informers().StartWithContext(context.WithoutCancel(ctx))
	select {
	case <-ctx.Done():
		m.stop()
		<-m.ended
		return m.err
	case <-m.ended:
		return m.failure()
	}
}

// failure returns why the Manager ended before it was asked to.
func (m *shardManager) failure() error {
	if m.err == nil {
		return errEnded
	}
	return m.err
}

// Close implements flotilla.Closer.
func (m *shardManager) Close() {
	m.begin.Do(func() { close(m.ended) })
	m.stop()
	<-m.ended
}

// isOwned reports whether Run was called.
func (m *shardManager) isOwned() bool {
	select {
	case <-m.owned:
		return true
	default:
		return false
	}
}

// toldPatience is how long handlers may take to process the objects they receive at the start.
const toldPatience = time.Minute

// told returns once the handlers added so far have received the existing objects, or with the error
// of ctx. It does not wait for handlers longer than toldPatience, but names them in the log. They
// still receive everything, but a reconciler may run before.
func (m *shardManager) told(ctx context.Context) error {
	m.mu.Lock()
	informers := m.informers
	m.mu.Unlock()
	var waiting []toolscache.DoneChecker
	for _, i := range informers {
		waiting = append(waiting, i.handlers()...)
	}
	patience, cancel := context.WithTimeout(ctx, toldPatience)
	defer cancel()
	if toolscache.WaitFor(patience, "", waiting...) {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("telling event handlers what there is: %w", context.Cause(ctx))
	}
	var late []string
	for _, w := range waiting {
		if !toolscache.IsDone(w) {
			late = append(late, w.Name())
		}
	}
	klog.FromContext(ctx).Error(
		nil, "Event handlers have not returned from what they were told at the start, "+
			"going on without them",
		"controller", m.shard.Controller(), "shard", m.shard, "handlers", late, "after", toldPatience,
	)
	return nil
}
