package flotilla

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/apiresponse"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Names of the rings of a fleet's first plan.
const (
	NamespacesRing = shard.NamespacesRing
	ClusterRing    = shard.ClusterRing
)

// Build makes a controller for a shard. After an error the fleet tries again after a while, for as
// long as the shard belongs to this member. Build may use the values of ctx, such as a logger; what
// it builds must not depend on when ctx ends. It must return within 24 times
// [Options.HandoffTimeout], 2 minutes by default: after that the process is ended if the shard no
// longer belongs to this member.
type Build func(ctx context.Context, s *Shard) (Runnable, error)

// Runnable is one controller of one shard.
type Runnable interface {
	// Run is called once the shard is owned. Handlers of the shard's informers may be called
	// shortly before it, so what they use must be there when Build returns. Run works until ctx
	// ends, and returns once everything that it started has ended. If it returns an error before
	// ctx ends, all controllers of the shard end, and are built again after a while on this member,
	// which keeps the shard. If it returns nil before that, it has nothing to do: the member keeps
	// the shard without it.
	Run(ctx context.Context) error
}

// RunnableFunc is a function as a Runnable.
type RunnableFunc func(ctx context.Context) error

// Run calls f.
func (f RunnableFunc) Run(ctx context.Context) error { return f(ctx) }

// Warmer is a Runnable that fills caches of its own before the shard is owned.
type Warmer interface {
	// Warm returns when the caches are full. They stay fresh until Run's context ends or Close is
	// called. The error says that ctx ended first, or why the caches cannot be filled.
	Warm(ctx context.Context) error
}

// Closer is a Runnable that needs a call when it is discarded without having run.
type Closer interface {
	// Close returns once everything that the controller started has ended.
	Close()
}

// Fleet is this process's part in a fleet. First say what it runs, with Namespaced and Singleton or
// with Shards; then call Run, once. Ready, Live and Member may be called at any time, concurrently.
type Fleet struct {
	options Options
	config  *rest.Config
	// serverPath is the path in the address of config's server.
	serverPath string

	mu          sync.Mutex
	controllers []controller
	shards      *Shards
	member      *fleet.Member
	// end ends what Prepare has started.
	end func()
	ran bool
}

// controller is a controller that was added.
type controller struct {
	name    string
	scope   shard.Scope
	build   Build
	limiter flowcontrol.RateLimiter
}

// New returns a fleet that has not started and has not contacted the API server. The error names
// each field that is out of bounds. Clients of the fleet and of its controllers are made from
// config: their User-Agents begin with its User-Agent, and its QPS and Burst limit each controller.
func New(config *rest.Config, options Options) (*Fleet, error) {
	if config == nil {
		return nil, errors.New("flotilla: config is nil")
	}
	options, err := options.complete()
	if err != nil {
		return nil, fmt.Errorf("flotilla: %w", err)
	}
	config = rest.CopyConfig(config)
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	return &Fleet{
		options: options, config: config, serverPath: apiresponse.ServerPath(config),
	}, nil
}

// Namespaced adds a controller of objects that lie in namespaces. One instance runs on each range.
// The name must be a DNS label, unique in the fleet. It panics in the same cases as Singleton.
func (f *Fleet) Namespaced(name string, build Build) { f.add(name, shard.ScopeNamespaced, build) }

// Singleton adds a controller of which one instance runs in the fleet, on everything: for example,
// a controller of cluster-scoped objects. It panics on mistakes of the program: if the name is not
// a DNS label or is taken, if build is nil, or after Prepare or Run.
func (f *Fleet) Singleton(name string, build Build) { f.add(name, shard.ScopeCluster, build) }

func (f *Fleet) add(name string, scope shard.Scope, build Build) {
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := slices.ContainsFunc(f.controllers, func(c controller) bool { return c.name == name })
	switch why := validation.IsDNS1123Label(name); {
	case len(why) > 0:
		panic(fmt.Sprintf("flotilla: controller name %q: %s", name, why[0]))
	case taken:
		panic(fmt.Sprintf("flotilla: controller %q has been added before", name))
	case build == nil:
		panic(fmt.Sprintf("flotilla: controller %q: build is nil", name))
	case f.member != nil:
		panic(fmt.Sprintf("flotilla: controller %q is added after Prepare or Run", name))
	}
	f.controllers = append(f.controllers, controller{name, scope, build, limiterOf(f.config)})
}

// limiterOf returns the limit of one controller's requests in the process; nil for no limit.
func limiterOf(config *rest.Config) flowcontrol.RateLimiter {
	if config.RateLimiter != nil || config.QPS < 0 {
		return config.RateLimiter
	}
	qps, burst := config.QPS, config.Burst
	if qps == 0 {
		qps = rest.DefaultQPS
	}
	if burst == 0 {
		burst = rest.DefaultBurst
	}
	return flowcontrol.NewTokenBucketRateLimiter(qps, burst)
}

// Prepare makes the member that Run will run, and contacts no server. Call it if others need the
// member before anything happens; otherwise Run does it. ctx is for the logger. What Prepare starts
// ends with Run, so call Run even to give up, with a context that has ended.
func (f *Fleet) Prepare(ctx context.Context) (*fleet.Member, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.member != nil {
		return nil, errors.New("flotilla: Prepare or Run was called before")
	}
	shards, err := f.toRun()
	if err != nil {
		return nil, fmt.Errorf("flotilla: %w", err)
	}
	member, end, err := f.newMember(klog.FromContext(ctx), shards)
	if err != nil {
		return nil, fmt.Errorf("flotilla: %w", err)
	}
	f.member, f.end = member, end
	return member, nil
}

// toRun returns what the program asked the fleet to run.
func (f *Fleet) toRun() (Shards, error) {
	switch {
	case f.shards != nil && len(f.controllers) > 0:
		return Shards{}, fmt.Errorf(
			"both Shards and controller %q were added: a fleet runs either", f.controllers[0].name)
	case f.shards != nil && f.options.Outside != nil:
		return Shards{}, errors.New("Options.Outside is set and the fleet runs Shards: " +
			"it is told of controllers that are added one by one")
	case f.shards != nil:
		return *f.shards, nil
	case len(f.controllers) == 0:
		return Shards{}, errors.New("there are no controllers: " +
			"add them with Namespaced and Singleton, or whole shards with Shards")
	}
	return f.oneByOne()
}

// Run runs the controllers of the shards that the fleet gives to this member, until ctx ends. Then
// it hands them over and returns nil. The error says why the process cannot go on as a member: end
// it and start it again.
func (f *Fleet) Run(ctx context.Context) error {
	if f.Member() == nil {
		if _, err := f.Prepare(ctx); err != nil {
			return err
		}
	}
	if !f.begin() {
		return errors.New("flotilla: Run was called before")
	}
	defer f.end()
	return f.member.Run(ctx)
}

// begin reports whether this is the first call of Run.
func (f *Fleet) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := !f.ran
	f.ran = true
	return first
}

// Ready is for a readiness probe. It returns nil once the member runs what the fleet has given to
// it, and otherwise an error that says what is missing.
func (f *Fleet) Ready() error {
	if m := f.Member(); m != nil {
		return m.Ready()
	}
	return errNotRun
}

// Live is for a liveness probe. It returns nil while the member's loops turn, and before Prepare
// and Run.
func (f *Fleet) Live() error {
	if m := f.Member(); m != nil {
		return m.Live()
	}
	return nil
}

var errNotRun = errors.New("the fleet has not been run yet")

// Member returns what the process knows about itself and the fleet; nil before Prepare and Run.
func (f *Fleet) Member() *fleet.Member {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.member
}
