package informer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// PoolConfig is what a Pool reads with and how.
type PoolConfig struct {
	// Client reads typed objects. It must be a real clientset: the pool uses the
	// REST clients behind it.
	Client kubernetes.Interface
	// Metadata reads object metadata.
	Metadata metadata.Interface
	// Resync returns the resync period of a new informer, for handlers that do not
	// ask for one of their own; it is called once an informer, so that informers
	// need not resync in step. Nil means no resync.
	Resync func() time.Duration
	// Transform is applied to every object before it is stored; nil for none.
	Transform cache.TransformFunc
	// Clock tells how old a probe's answer is. Nil means the real clock.
	Clock clock.PassiveClock
}

// Pool holds the informers that all shards of a process share, each as long as
// some factory uses it, and what factories need in common. Methods may be called
// concurrently.
type Pool struct {
	config PoolConfig
	kinds  *kinds
	prober *prober
	// discarded counts objects and events that clients dropped because they were
	// outside the range.
	discarded atomic.Int64

	mu     sync.Mutex
	shared map[sharedKey]*shared
}

// sharedKey names an informer of the pool: a resource, whole or metadata only.
type sharedKey struct {
	resource schema.GroupVersionResource
	metadata bool
}

// NewPool returns an empty pool.
func NewPool(c PoolConfig) (*Pool, error) {
	if c.Client == nil || c.Metadata == nil {
		return nil, fmt.Errorf("informer pool: Client and Metadata are required")
	}
	if c.Resync == nil {
		c.Resync = func() time.Duration { return 0 }
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	k, err := newKinds(c.Client)
	if err != nil {
		return nil, fmt.Errorf("informer pool: %w", err)
	}
	return &Pool{config: c, kinds: k, prober: newProber(k, c.Clock), shared: map[sharedKey]*shared{}}, nil
}

// Modes returns who filters, for each resource that a shard has listed.
func (p *Pool) Modes() map[schema.GroupVersionResource]Mode { return p.prober.snapshot() }

// Discarded returns how many objects and events have been dropped by this process
// because the API server sent them though they were outside the range.
func (p *Pool) Discarded() int64 { return p.discarded.Load() }

// Resources returns the resources whose informers are shared at present.
func (p *Pool) Resources() []schema.GroupVersionResource {
	p.mu.Lock()
	defer p.mu.Unlock()
	resources := make([]schema.GroupVersionResource, 0, len(p.shared))
	for key := range p.shared {
		resources = append(resources, key.resource)
	}
	return resources
}

// shared is one informer of the pool and who uses it.
type shared struct {
	*Informer
	pool *Pool
	key  sharedKey
	// users is guarded by pool.mu; the informer leaves the pool when it falls to 0.
	users int

	start sync.Once
	stop  context.CancelFunc
	ctx   context.Context
	ended chan struct{}
}

// acquire returns the pool's informer for key, which is not started yet if nobody
// has. Each acquire needs one release.
func (p *Pool) acquire(key sharedKey, read reader, example runtime.Object) *shared {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.shared[key]; ok {
		s.users++
		return s
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &shared{
		pool: p, key: key, users: 1, ctx: ctx, stop: cancel, ended: make(chan struct{}),
		Informer: newInformer(config{
			example:   example,
			source:    reflected(everything(read), example, key.resource.String()),
			resync:    p.config.Resync(),
			transform: p.config.Transform,
		}),
	}
	p.shared[key] = s
	return s
}

// run starts the informer unless it has been. The context that ends it is the
// pool's: one shard's end must not stop what others use. Only the logger is taken
// from ctx.
func (s *shared) run(ctx context.Context) {
	s.start.Do(func() {
		runCtx := klog.NewContext(s.ctx, klog.FromContext(ctx))
		go func() {
			defer close(s.ended)
			s.RunWithContext(runCtx)
		}()
	})
}

// release gives up one use, and ends the informer with the last one. It returns
// after the informer has ended.
func (s *shared) release() {
	s.pool.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(s.pool.shared, s.key)
	}
	s.pool.mu.Unlock()
	if !last {
		return
	}
	s.stop()
	s.start.Do(func() { close(s.ended) }) // never started
	<-s.ended
}

// everything lists and watches without a filter.
func everything(read reader) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return read.List(ctx, current(options))
		},
		WatchFuncWithContext: read.Watch,
	}
}
