package informer

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// PoolConfig says what a Pool reads with, and how.
type PoolConfig struct {
	// Client reads typed objects. It must be a real clientset: the pool uses the REST clients
	// behind it.
	Client kubernetes.Interface
	// Metadata reads object metadata. Informers of other forms also use it, to check whether what
	// they hold is current; see [Factory.Refresh].
	Metadata metadata.Interface
	// Dynamic reads unstructured objects, for [Factory.Dynamic]. Nil if nobody asks for these.
	Dynamic dynamic.Interface
	// Resources are those whose types [Factory.InformerFor] and [Factory.ForResource] know in
	// addition to client-go's clientset. Each must have a Scope and a type of its own, used by no
	// other resource. Use [Factory.Custom] for other resources.
	Resources []Resource
	// Resync returns the resync period of a new informer, for handlers that do not ask for one of
	// their own. It is called once for each informer, so that informers need not resync in step.
	// Nil means no resync.
	Resync func() time.Duration
	// Transform is applied to every object before it is stored; nil for none.
	Transform cache.TransformFunc
	// Slim makes slim copies of the objects of a resource, which hold what some controllers read of
	// them; see [Factory.Slimmed]. Each function returns a new object, does not change the given
	// one, and makes nothing else of a copy than the copy. It receives either what the API server
	// sent, and Transform is applied to the copy, or what Transform has returned. So it must not
	// read what Transform changes.
	Slim map[schema.GroupVersionResource]func(obj any) any
	// Clock measures how old a probe's answer is, and how long a list took. Nil means the real
	// clock.
	Clock Clock
}

// Mode says who filters a resource by range: [ServerSide] or [ClientSide].
type Mode = listwatch.Mode

const (
	// ServerSide: the API server honours shardSelector; the client checks again.
	ServerSide = listwatch.ServerSide
	// ClientSide: the server sends everything and the client drops the rest.
	ClientSide = listwatch.ClientSide
)

// Clock is what a Pool needs of a clock. The clocks of k8s.io/utils/clock satisfy it.
type Clock interface{ Now() time.Time }

// Pool holds the informers that all shards of a process share, each as long as some factory uses
// it, and what factories need in common. Methods may be called concurrently.
type Pool struct {
	config PoolConfig
	kinds  *listwatch.Kinds
	// registered are the resources of the config by type.
	registered map[reflect.Type]Resource
	prober     *listwatch.Prober
	// discarded counts objects and events that clients dropped because they were outside the range
	// and nobody in the process needed them.
	discarded atomic.Int64
	moments   atomic.Int64
	// expected are the ranges of Expect; nil for none.
	expected atomic.Pointer[[]shard.Range]
	// unseen counts updates that no cache had seen within the time given to See.
	unseen atomic.Int64

	mu     sync.Mutex
	shared map[sharedKey]*shared
	// factories are those that have not been shut down.
	factories map[*Factory]struct{}
	// waiting are functions to call when an informer of the key begins to run.
	waiting map[sharedKey]map[*func()]struct{}
	// followers counts informers that follow another one.
	followers map[schema.GroupVersionResource]int
	// feeds are what ranges read together.
	feeds map[sharedKey]*feed
	// absences are those of the resources that somebody has read.
	absences map[schema.GroupVersionResource]*absence
}

// sharedKey names an informer of the pool: a resource, whole objects or only metadata, all of it or
// the part that a field selector names, whole or slim copies, and the type of its objects.
type sharedKey struct {
	resource schema.GroupVersionResource
	metadata bool
	narrow   string
	slim     bool
	// picked says that a controller picks objects with a function of its own. Such informers belong
	// to one factory.
	picked bool
	// object is the type of the objects if it is neither that of the clientset nor metadata.
	object reflect.Type
	// strict says that metadata is never a whole object.
	strict bool
	// root says that the resource was found to be cluster-scoped: objects with a namespace, of a
	// resource that has become namespaced, are refused. Only for resources that are not built in.
	root bool
}

// supersets are the keys of informers that hold everything that one with key k may hold, without k.
// Their order goes one way, from parts and metadata over slim copies to all whole objects, so
// informers never follow each other in a circle. Keys of other types of objects have none.
func (k sharedKey) supersets() []sharedKey {
	var keys []sharedKey
	if k.picked {
		keys = append(keys, k.unpicked())
	}
	if k.metadata {
		keys = append(keys, sharedKey{resource: k.resource, narrow: k.narrow})
	}
	if k.metadata && k.narrow == "" {
		keys = append(keys, sharedKey{resource: k.resource, slim: true})
	}
	if k.narrow != "" || k.slim {
		keys = append(keys, sharedKey{resource: k.resource})
	}
	if k.strict {
		keys = append(keys, sharedKey{resource: k.resource, metadata: true})
	}
	return keys
}

// probed is what a probe of the API server's filter asks about.
func (k sharedKey) probed() listwatch.Form {
	return listwatch.Form{Resource: k.resource, Object: k.object}
}

// unpicked is the key of an informer that holds everything that one with key k picks from.
func (k sharedKey) unpicked() sharedKey {
	k.picked = false
	return k
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
	k, err := listwatch.NewKinds(c.Client)
	if err != nil {
		return nil, fmt.Errorf("informer pool: %w", err)
	}
	resources, err := registered(c.Resources, k)
	if err != nil {
		return nil, fmt.Errorf("informer pool: Resources: %w", err)
	}
	return &Pool{
		config: c, kinds: k, registered: resources, prober: listwatch.NewProber(k, c.Clock),
		shared: map[sharedKey]*shared{}, factories: map[*Factory]struct{}{},
		waiting: map[sharedKey]map[*func()]struct{}{}, followers: map[schema.GroupVersionResource]int{},
		feeds: map[sharedKey]*feed{}, absences: map[schema.GroupVersionResource]*absence{},
	}, nil
}

// Modes returns who filters, for each resource that a shard has listed.
func (p *Pool) Modes() map[schema.GroupVersionResource]Mode { return p.prober.Modes() }

// Discarded returns how many objects and events this process has dropped because the API server
// sent them although they were outside the range. It does not count what the server had to send to
// an informer that picks from all objects.
func (p *Pool) Discarded() int64 { return p.discarded.Load() }

// Unseen returns how many updates a shard's cache had not seen in time; see [Factory.See].
func (p *Pool) Unseen() int64 { return p.unseen.Load() }

// Resources returns the resources whose informers are shared at the moment.
func (p *Pool) Resources() []schema.GroupVersionResource {
	p.mu.Lock()
	defer p.mu.Unlock()
	resources := make([]schema.GroupVersionResource, 0, len(p.shared))
	for key := range p.shared {
		resources = append(resources, key.resource)
	}
	return resources
}

// Followed returns how many informers currently follow another one of the process instead of
// reading from the API server, for each resource that has any.
func (p *Pool) Followed() map[schema.GroupVersionResource]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.followers)
}

func (p *Pool) count(gvr schema.GroupVersionResource, change int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.followers[gvr] += change; p.followers[gvr] == 0 {
		delete(p.followers, gvr)
	}
}

// now returns a moment that is later than all before.
func (p *Pool) now() moment { return moment(p.moments.Add(1)) }

// lead returns the informer to follow: the first of keys that is used, runs and has synced, or else
// that runs; nil for none. It leaves out those for which will, unless it is nil, returns false.
func (p *Pool) lead(keys []sharedKey, will func(*shared) bool) *shared {
	p.mu.Lock()
	running := make([]*shared, 0, len(keys))
	for _, key := range keys {
		if s, used := p.shared[key]; used && s.running {
			running = append(running, s)
		}
	}
	p.mu.Unlock()
	var filling *shared
	for _, s := range running {
		switch {
		case will != nil && !will(s):
		case s.HasSynced():
			return s
		case filling == nil:
			filling = s
		}
	}
	return filling
}

// whenRun calls f, which must not block, if an informer of keys runs, and whenever another one
// begins to, until stop.
func (p *Pool) whenRun(keys []sharedKey, f func()) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	runs := false
	for _, key := range keys {
		if p.waiting[key] == nil {
			p.waiting[key] = map[*func()]struct{}{}
		}
		p.waiting[key][&f] = struct{}{}
		s, used := p.shared[key]
		runs = runs || used && s.running
	}
	if runs {
		f()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, key := range keys {
			delete(p.waiting[key], &f)
		}
	}
}

// shared is one informer of the pool and its users. Informers that follow it are not users.
type shared struct {
	*store.Informer
	pool *Pool
	key  sharedKey
	// known is what is known about how new its objects are.
	known freshness
	// users and running are guarded by pool.mu; the informer leaves the pool when users falls to 0.
	users   int
	running bool
	// readers counts users, and those that have released it but may still read what it holds;
	// guarded by pool.mu.
	readers int

	start sync.Once
	stop  context.CancelFunc
	ctx   context.Context
	ended chan struct{}
}

// acquire returns the pool's informer for key, which is not started yet if nobody has started it.
// Each acquire needs one release, and one forget after that. past is the acquirer's; only the first
// one's counts.
func (p *Pool) acquire(key sharedKey, read listwatch.Reader, example runtime.Object, past moment) *shared {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.shared[key]; ok {
		s.users++
		s.readers++
		return s
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &shared{
		pool: p, key: key, users: 1, readers: 1, ctx: ctx, stop: cancel, ended: make(chan struct{}),
	}
	lw := s.everything(read)
	if key.slim {
		lw = s.slimming(lw)
	}
	source := s.rereading(reflected(lw, example, key.resource.String()))
	if keys := key.supersets(); len(keys) > 0 {
		source = following{pool: p, keys: keys, read: source, past: past, follows: s.known.leader.Store}.source()
	}
	s.Informer = store.New(store.Config{
		Example: example,
		Keep:    key.selects(),
		Source: func(ctx context.Context, into *store.Sink) {
			into.Listed = s.noteListed
			source(ctx, into)
		},
		Resync:    p.config.Resync(),
		Transform: p.config.Transform,
		Shed:      p.sheds(key),
		Strict:    key.strict,
		Copies:    p.copies(key),
	})
	p.shared[key] = s
	return s
}

// run starts the informer unless it runs already. The pool's context ends it: one shard's end must
// not stop what others use. Only the logger is taken from ctx.
func (s *shared) run(ctx context.Context) {
	s.start.Do(func() {
		s.pool.begin(s)
		runCtx := klog.NewContext(s.ctx, klog.FromContext(ctx))
		go func() {
			defer close(s.ended)
			s.RunWithContext(runCtx)
		}()
	})
}

// begin records that s runs.
func (p *Pool) begin(s *shared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.running = true
	for f := range p.waiting[s.key] {
		(*f)()
	}
}

// release gives up one use, and the last one ends the informer. It returns after the informer has
// ended. Its followers go on by themselves, and are not waited for.
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
	s.Desert()
	s.stop()
	s.start.Do(func() { close(s.ended) }) // never started
	<-s.ended
	s.endChecks()
}

// forget, called after release, gives up one use of what the informer holds, and the last one
// empties it.
func (s *shared) forget() {
	s.pool.mu.Lock()
	s.readers--
	last := s.readers == 0
	s.pool.mu.Unlock()
	if last {
		s.Empty()
	}
}

// everything lists and watches without a filter.
func (s *shared) everything(read listwatch.Reader) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if options.Continue == "" {
				s.noteAsked(options.ResourceVersion)
			}
			return read.List(ctx, listwatch.Current(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if listwatch.Streams(options) {
				s.noteAsked(options.ResourceVersion)
			}
			return read.Watch(ctx, options)
		},
	}
}
