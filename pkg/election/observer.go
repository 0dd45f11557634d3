package election

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// LeaseReader is the part of client-go's LeaseInterface that an Observer needs. Give it its own
// client: heartbeats must not wait behind other requests in a client's rate limiter.
type LeaseReader interface {
	List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// ObserverConfig configures an Observer.
type ObserverConfig struct {
	// Fleet is the fleet's name; the observer keeps the Leases whose names begin with "<fleet>-".
	// Required.
	Fleet string
	// Extra are the full names of further Leases to keep, such as a leader lock's. Default: none.
	Extra []string
	// Client reads the Leases of the fleet's namespace. Required.
	Client LeaseReader
	// Clock timestamps observations. It must be the clock of the process's claimants. Required.
	Clock Clock
}

// Observer watches the Leases of one namespace with a single watch and records when this process
// last saw each of them change. All methods are safe for concurrent use.
type Observer struct {
	cfg ObserverConfig

	mu       sync.Mutex
	logger   klog.Logger
	syncedAt time.Time
	known    map[string]*Observation // replaced, not changed
	// names are the sorted names of the existing Leases, and listed is the result of List. Each is
	// nil when stale.
	names       []string
	listed      []Observation
	through     heartbeat.Version
	waiting     []waiter
	subscribers map[*subscriber]struct{}
	// ofLease has the subscribers to single Leases, by name. A member has one for each shard of the
	// fleet.
	ofLease map[string]map[*subscriber]struct{}
}

// waiter waits until everything written up to a version is known.
type waiter struct {
	version heartbeat.Version
	reached chan struct{}
}

type subscriber struct {
	match func(before, after Observation) bool
	wake  chan struct{}
}

// NewObserver returns an observer that knows nothing until Run has listed the Leases once. The
// error names every missing field.
func NewObserver(cfg ObserverConfig) (*Observer, error) {
	var errs []error
	if cfg.Fleet == "" {
		errs = append(errs, errors.New("ObserverConfig.Fleet is empty, must be the fleet's name"))
	}
	if cfg.Client == nil {
		errs = append(errs, errors.New("ObserverConfig.Client is nil, must read Leases"))
	}
	if cfg.Clock == nil {
		errs = append(errs, errors.New("ObserverConfig.Clock is nil, must be the process's clock"))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Observer{
		cfg:         cfg,
		logger:      klog.Background(),
		known:       make(map[string]*Observation),
		subscribers: make(map[*subscriber]struct{}),
		ofLease:     make(map[string]map[*subscriber]struct{}),
	}, nil
}

// Run lists and watches until ctx ends, and returns after its last goroutine has ended. Call it
// once.
func (o *Observer) Run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	o.mu.Lock()
	o.logger = logger
	o.mu.Unlock()

	// The reflector lists on goroutines that it does not wait for, and may start one while it
	// stops.
	var (
		lists   sync.WaitGroup
		mu      sync.Mutex
		stopped bool
	)
	defer func() {
		mu.Lock()
		stopped = true
		mu.Unlock()
		lists.Wait()
	}()
	begin := func() bool {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			lists.Add(1)
		}
		return !stopped
	}
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			if !begin() {
				return nil, context.Canceled
			}
			defer lists.Done()
			return o.cfg.Client.List(ctx, opts)
		},
		WatchFuncWithContext: o.cfg.Client.Watch,
	}, o.cfg.Client)
	cache.NewReflectorWithOptions(lw, &coordinationv1.Lease{}, sink{o}, cache.ReflectorOptions{
		Name:   "flotilla-leases",
		Logger: &logger,
		// The default backoff reaches a minute, and a member that cannot see the Leases cannot take
		// over. Retrying sooner also usually lets the watch confirm a heartbeat after an outage,
		// before the member has to read all Leases for that.
		Backoff: &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 2, Cap: time.Second},
	}).RunWithContext(ctx)
}

// HasSynced reports whether all Leases have been listed once.
func (o *Observer) HasSynced() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.syncedAt.IsZero()
}

// Watches reports whether the observer keeps the Lease of this name.
func (o *Observer) Watches(name string) bool {
	return strings.HasPrefix(name, o.cfg.Fleet+"-") || slices.Contains(o.cfg.Extra, name)
}

// Get returns what is known about one Lease. Before the first sync a Lease that was never observed
// is not Known; after it, the Lease counts as absent since that sync.
func (o *Observer) Get(name string) Observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.get(name)
}

func (o *Observer) get(name string) Observation {
	obs, ok := o.known[name]
	if !ok {
		return Observation{Record: leaserecord.Record{Name: name}, Seen: o.syncedAt}
	}
	return o.linked(obs)
}

// linked returns the observation with its Heartbeat.
func (o *Observer) linked(obs *Observation) Observation {
	return obs.linked(o.cfg.Fleet, o.cfg.Extra, o.syncedAt, func(name string) *Observation { return o.known[name] })
}

// List returns what is known about every existing Lease, sorted by name. Until something changes,
// every call returns the same slice, which must not be modified.
func (o *Observer) List() []Observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.listed != nil {
		return o.listed
	}
	if o.names == nil {
		o.names = make([]string, 0, len(o.known))
		for name, obs := range o.known {
			if obs.Exists {
				o.names = append(o.names, name)
			}
		}
		slices.Sort(o.names)
	}
	o.listed = make([]Observation, 0, len(o.names))
	for _, name := range o.names {
		o.listed = append(o.listed, o.linked(o.known[name]))
	}
	return o.listed
}

// Living returns the observations of the members' Leases, in no order, and for each incarnation
// that other Leases name as holder, when any of these was last seen to change. It leaves out Leases
// of other fleets, but for those that this process has a claimant for: their labels were changed.
// It copies no shard's Lease, so that it can be called several times a second.
func (o *Observer) Living() (members []Observation, named map[string]time.Time) {
	prefix := leaserecord.MemberLease(o.cfg.Fleet, "")
	named = map[string]time.Time{}
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, obs := range o.known {
		switch {
		case !obs.Exists, obs.OfOtherFleet(o.cfg.Fleet) && len(o.ofLease[name]) == 0:
		case strings.HasPrefix(name, prefix):
			members = append(members, *obs)
		case leaserecord.MemberOf(obs.Holder) != "" && !slices.Contains(o.cfg.Extra, name):
			named[obs.Holder] = later(named[obs.Holder], obs.Seen)
		}
	}
	return members, named
}

// Observe records a Lease that a get, create or update has returned, so that a writer knows its own
// write before the watch delivers it. Observe ignores a Lease that is not newer than the one known.
// The Lease must not be modified afterwards.
func (o *Observer) Observe(lease *coordinationv1.Lease) {
	o.change(lease.Name, func(obs Observation, now time.Time) (Observation, bool) { return obs.Saw(lease, now) })
}

// Missing records that a request found no Lease of this name. version is the ResourceVersion that
// Get returned before the request was sent: anything observed since then is newer and stays.
func (o *Observer) Missing(name, version string) {
	o.change(name, func(obs Observation, now time.Time) (Observation, bool) {
		if obs.ResourceVersion != version {
			return obs, false
		}
		return obs.Gone("", now)
	})
}

// Subscribe returns a channel that receives after every change of a Lease whose name match accepts,
// and after the first sync. Changes that arrive faster than the channel is read are coalesced.
// match must not block. Call stop when done; it does not close the channel.
func (o *Observer) Subscribe(match func(name string) bool) (changed <-chan struct{}, stop func()) {
	return o.SubscribeChanges(func(_, after Observation) bool { return match(after.Name) })
}

// SubscribeChanges is Subscribe for a match that compares the Lease before and after, for example
// to ignore renewals.
func (o *Observer) SubscribeChanges(match func(before, after Observation) bool) (changed <-chan struct{}, stop func()) {
	s := &subscriber{match: match, wake: make(chan struct{}, 1)}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.subscribers[s] = struct{}{}
	return s.wake, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.subscribers, s)
	}
}

// subscribeLease is Subscribe for one Lease. It also wakes when the list of ended incarnations
// changes on the Lease of its holder's member.
func (o *Observer) subscribeLease(name string) (changed <-chan struct{}, stop func()) {
	s := &subscriber{wake: make(chan struct{}, 1)}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ofLease[name] == nil {
		o.ofLease[name] = make(map[*subscriber]struct{})
	}
	o.ofLease[name][s] = struct{}{}
	return s.wake, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if delete(o.ofLease[name], s); len(o.ofLease[name]) == 0 {
			delete(o.ofLease, name)
		}
	}
}

// change replaces one observation and wakes its subscribers.
func (o *Observer) change(name string, next func(Observation, time.Time) (Observation, bool)) {
	if !o.Watches(name) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.get(name)
	after, changed := next(before, o.cfg.Clock.Now())
	if !changed {
		return
	}
	after.Heartbeat = nil // looked up on reading
	o.known[name] = &after
	o.listed = nil
	if before.Exists != after.Exists {
		o.names = nil
	}
	if after.Problem != "" && after.Problem != before.Problem {
		o.logger.Info("Read a Lease that made no sense", "lease", name, "problem", after.Problem)
	}
	for s := range o.subscribers {
		if s.match(before, after) {
			s.notify()
		}
	}
	for s := range o.ofLease[name] {
		s.notify()
	}
	member, is := leaserecord.MemberOfLease(o.cfg.Fleet, name)
	if is && before.Annotations[leaserecord.EndedAnnotation] != after.Annotations[leaserecord.EndedAnnotation] {
		// Of a thousand claims, few wait for this member.
		o.notifyClaims(func(lease *Observation) bool { return lease != nil && leaserecord.MemberOf(lease.Holder) == member })
	}
}

// notifyClaims wakes the subscribers to those single Leases that match accepts; nil is one of which
// nothing is known.
func (o *Observer) notifyClaims(match func(*Observation) bool) {
	for name, subscribers := range o.ofLease {
		if !match(o.known[name]) {
			continue
		}
		for s := range subscribers {
			s.notify()
		}
	}
}

// notify sends a wake-up, unless one is pending.
func (s *subscriber) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// replace records a complete list as of version.
func (o *Observer) replace(leases []*coordinationv1.Lease, version string) {
	listed := make(map[string]bool, len(leases))
	for _, lease := range leases {
		listed[lease.Name] = true
		o.Observe(lease)
	}
	for _, obs := range o.List() {
		if !listed[obs.Name] {
			o.deleted(obs.Name, version)
		}
	}
	o.progressed(version)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.syncedAt.IsZero() {
		o.syncedAt, o.listed = o.cfg.Clock.Now(), nil
		for s := range o.subscribers {
			s.notify()
		}
		o.notifyClaims(func(*Observation) bool { return true })
	}
}

// Through returns the version up to which all writes to Leases are known: that of the last watch
// event or list; 0 if there was none. Answers to this process's own requests do not count, because
// others may have written between two of them.
func (o *Observer) Through() heartbeat.Version {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.through
}

// Reached returns a channel that is closed once Through has reached version.
func (o *Observer) Reached(version heartbeat.Version) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	reached := make(chan struct{})
	if o.through >= version {
		close(reached)
	} else {
		o.waiting = append(o.waiting, waiter{version, reached})
	}
	return reached
}

// ReachedSelf is Reached for the newest known version of one Lease: once the channel is closed,
// every write to any Lease before that version is known. It returns false if the version is not a
// number, so that it cannot be compared.
func (o *Observer) ReachedSelf(name string) (<-chan struct{}, bool) {
	version := heartbeat.ParseVersion(o.Get(name).ResourceVersion)
	if version == 0 {
		return nil, false
	}
	return o.Reached(version), true
}

// Listed records a consistent list of all Leases of the namespace.
func (o *Observer) Listed(list *coordinationv1.LeaseList) {
	leases := make([]*coordinationv1.Lease, 0, len(list.Items))
	for _, lease := range list.Items { // a copy each: a pointer into the list would keep all of it
		leases = append(leases, &lease)
	}
	o.replace(leases, list.ResourceVersion)
}

// progressed records that everything up to version is known. It ignores a version that is not a
// number.
func (o *Observer) progressed(version string) {
	v := heartbeat.ParseVersion(version)
	o.mu.Lock()
	defer o.mu.Unlock()
	if v <= o.through {
		return
	}
	o.through = v
	o.waiting = slices.DeleteFunc(o.waiting, func(w waiter) bool {
		if w.version > v {
			return false
		}
		close(w.reached)
		return true
	})
}

// deleted records that the Lease did not exist at version.
func (o *Observer) deleted(name, version string) {
	o.change(name, func(obs Observation, now time.Time) (Observation, bool) { return obs.Gone(version, now) })
}
