package fleet

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/fleet/fencing"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leadership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/fleet/planner"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// Leases is the part of the API of Leases that a member uses; client-go's LeaseInterface implements
// it. Give it a client of its own: heartbeats must not wait behind the controllers' requests.
type Leases interface {
	election.LeaseReader
	election.LeaseWriter
}

// dialTimeout bounds the opening of a connection for Leases, and is the time between keep-alive
// probes of a silent one. Both are client-go's own values.
const dialTimeout = 30 * time.Second

// LeaseConfig returns the configuration of a client for Leases alone, derived from the process's
// configuration. Neither rate limits nor traffic on other connections may delay a renewal. Setting
// a dialer makes client-go open separate connections. A client without one shares its connection
// with every client that has the same certificate, and its answers wait behind everything already
// sent to informers. A request that gets no answer before its deadline has the connection closed,
// if that has brought nothing else either.
func LeaseConfig(config *rest.Config, member string) *rest.Config {
	c := rest.CopyConfig(config)
	c.QPS, c.RateLimiter = -1, nil
	c.Timeout = 0 // each request has its own; watches have none
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext
	}
	own := newConnections(c.Dial)
	c.Dial = own.Dial
	c.Wrap(own.wrap)
	return rest.AddUserAgent(c, "fleet-member/"+member)
}

// MaxFleetName is the maximum length of a fleet's name. It leaves room for the ring and the shard
// in a Lease's name.
const MaxFleetName = 63

// Defaults of [Config].
const (
	DefaultHandoffTimeout = 5 * time.Second
	DefaultHandoffs       = 4
)

// Config configures a Member. Fields without a default are required.
type Config struct {
	// Fleet is the fleet's name. Member is this member's name, unique in the fleet.
	Fleet, Member string
	// Plan is the fleet's first plan. The member writes it if the fleet has none; otherwise members
	// work by the plan on the plan's Lease.
	Plan shard.Plan
	// Check returns why this member cannot work by a plan that is itself valid, for example because
	// of an unknown controller. The error names the field, its value and what is allowed. Check
	// must not block. Default: the member can work by any plan.
	Check func(shard.Plan) error
	// Catalogue lists the controllers that this member's build knows. The member runs no others,
	// and publishes the list on its Lease. Members may differ in it: docs/design/skew.md. Default:
	// the build knows all, and Check alone decides which plans it can work by.
	Catalogue skew.Build
	// Node and Zone say where the member runs; they are on its Lease for people to read. Default:
	// not published.
	Node, Zone string
	// Rings are the names of the rings that the member serves. Default: all.
	Rings []string
	// LeaderLocks are the names of foreign Leases that the fleet must hold while any member runs.
	// Default: none.
	LeaderLocks []string
	// LeaderLockDelay is how long a leader lock must have been free of other holders before an idle
	// fleet begins: the stock controller manager releases its Lease when it begins to stop, not
	// when it has stopped. A Lease that was absent or expired already counts as free for longer.
	// Default 0; must not be negative.
	LeaderLockDelay time.Duration
	// Replanning configures this member as the planner.
	Replanning planner.Replanning
	// CensusInterval is how often holders publish the weight of their shards. The first time is a
	// sixth of it after they begin. They wait only half of it after the number of objects in a
	// range has clearly changed, or a sixth after it has grown by more than Replanning.Urgent, but
	// publish at most twice in each. Default: a minute.
	CensusInterval time.Duration
	// Memory returns what the member publishes about its memory on its Lease. It is called six
	// times in a CensusInterval and may take a while. Default: nothing is published.
	Memory func() leaseapi.Memory
	// Use returns what the member publishes about its other resource use. It is called at the same
	// times, from one goroutine. Default: nothing is published.
	Use func() leaseapi.Use
	// Leases accesses the Leases of the namespace in which the fleet coordinates.
	Leases Leases
	// ServerPath is the path in the address of the API server that the work writes to, as in
	// fence.Config: such as /k8s/clusters/c-1, for a server behind a proxy. It begins with a slash
	// and does not end with one. Default: none.
	ServerPath string
	// Clock measures claims. Default: election.NewClock().
	Clock election.Clock
	// Timing applies to all claims and to the membership.
	Timing election.Timing
	// RebalanceDelay is how long a new member waits before it gets shards, unless no other member
	// is active. Default 0.
	RebalanceDelay time.Duration
	// Forgets reports whether a controller keeps something only in memory that an operator could
	// miss when the controller begins again in another instance. Default: none does.
	Forgets func(controller string) bool
	// Build makes the work of a shard without starting it. After an error the member tries again.
	// ctx supplies values only; the work must not depend on its end. Build must return within 24
	// HandoffTimeouts, or the process may be ended.
	Build func(ctx context.Context, work Work) (Instance, error)
	// Expect is called with the ranges of the shards whose work this member does, prepares or is
	// about to: before the first Build of each, and whenever they change. A Build that has begun
	// may end after its range is gone from them. Expect must not wait for the API server. Default:
	// nobody is told.
	Expect func(ranges []shard.Range)
	// HandoffTimeout bounds each step of a handoff: how long work may go on writing after it was
	// asked to stop, how long a leaving member waits until others ask for its shards, and how long
	// prepared caches may take to see the last write. Upstream's controllers work off everything
	// that is queued before they return; refusing their writes after this time makes them return
	// soon. Default DefaultHandoffTimeout.
	HandoffTimeout time.Duration
	// ShutdownTimeout is how long, while the member leaves the fleet, the work of a shard may take
	// to return after its writes are refused. After that the process ends and leaves the Lease to
	// expire. The default and maximum is Timing.LeaseDuration, which always applies while the
	// member stays. Must not be negative.
	ShutdownTimeout time.Duration
	// Handoffs is how many shards held by others the member prepares at a time. Default
	// DefaultHandoffs.
	Handoffs int
	// Standby makes the member keep warm the caches of the shards that it would own if their holder
	// failed. Default false.
	Standby bool
	// Enforced reports whether the API server refuses credentials that a member's Lease marks as
	// fenced; see deploy/fence. It must not block. Default: it does not.
	Enforced func() bool
	// FenceDelay is how long the member waits after a dead member was marked as fenced before it
	// begins to run any shard, so that the API server has seen the mark. Default 0; must not be
	// negative, and at most HandoffTimeout, because a member that is stopping waits for it too.
	FenceDelay time.Duration
	// Observe receives the events of every claim, in order for each Lease, and those of
	// preparations, which may arrive concurrently. It must not block. Default: events are
	// discarded.
	Observe func(Event)
	// Exit ends the process at once. The member calls it when the work of a lost claim has not
	// returned by the time that others may take over, when work that was asked to stop has not
	// returned long after its writes were refused (see ShutdownTimeout), when a preparation does not
	// end long after it was given up, and when one of the member's loops hangs.
	Exit func(reason string)
}

// Instance is the work of one shard. Its user calls either Run, once, or Close, and may call Warm
// and CatchUp before.
type Instance interface {
	// Warm fills the instance's caches and returns when they are full. They stay fresh. It returns
	// an error if ctx ends first.
	Warm(ctx context.Context) error
	// CatchUp returns once the caches that Warm filled have seen the writes. If ctx ends first, the
	// error names a cache that has not.
	CatchUp(ctx context.Context, writes fence.Writes) error
	// Run does the work until ctx ends, and returns after all of it has ended. It returns an error
	// if the work could not be started.
	Run(ctx context.Context) error
	// Close discards what was built, and returns after all of it has ended.
	Close()
}

// Refresher is an Instance whose caches can be checked against the present. A standby needs it
// after a holder that left no record of its last writes.
type Refresher interface {
	// Refresh returns once the caches that Warm filled have seen everything written before the
	// call. If ctx ends first, the error names a cache that has not.
	Refresh(ctx context.Context) error
}

// Forgetter is an Instance that can discard the contents of its caches.
type Forgetter interface {
	// Forget is called once Run or Close has returned and the fence lets nothing pass: upstream's
	// metrics and some goroutines outlive their controller, and might read an empty cache.
	Forget()
}

// Weigher is an Instance that can report the weight of each namespace, so that ranges can be
// balanced.
type Weigher interface {
	// Weigh returns how many objects the caches hold, by namespace, or nil once the instance has
	// ended. It may be called during Run.
	Weigh() map[string]int64
}

// Loader is an Instance that can report how much memory it takes, so that groups are weighed like
// ranges.
type Loader interface {
	// Load returns an estimate, or false once the instance has ended. It may be called during Run.
	Load() (Load, bool)
}

// Load is an estimate of the memory that the work of a shard takes.
type Load struct {
	// Namespaces has the bytes cached for the shard alone, by namespace.
	Namespaces map[string]int64
	// Shared has the bytes of everything else cached for the shard. Fixed has the bytes that the
	// shard takes without any object.
	Shared, Fixed int64
}

// Work is the argument of Build.
type Work struct {
	Shard shard.Shard
	// Controllers are the names of the controllers that the shard runs; empty if the build has none
	// of those that the plan names, see Config.Catalogue.
	Controllers []string
	// Share is how many shards of this ring a member is expected to hold. Shards is how many the
	// ring has.
	Share, Shards int
	// Fence must wrap the transport of every client with which the work writes to the API server.
	Fence func(http.RoundTripper) http.RoundTripper
	// FenceForeign is Fence for transports to other servers: the next holder does not wait until
	// its caches have seen what was written there.
	FenceForeign func(http.RoundTripper) http.RoundTripper
	// Term returns the term of the claim behind the fence, or 0 before the shard is owned and after
	// the fence has closed.
	Term func() int32
	// Closed is closed once the fence is closed for good.
	Closed <-chan struct{}
	// Close closes the fence for good, in the middle of Run: for work that has failed and does not
	// end. Requests under way end with the claim.
	Close func()
	// Running must be called once from within the instance's Run, when the work is under way and no
	// longer waits for caches. It does not block.
	Running func()
}

// EventLeaderLock is the prefix of the events of a leader lock's Lease. The rest of the Type is
// that of the event of package election.
const EventLeaderLock = leadership.EventPrefix

// Events besides those of a claim.
const (
	// EventPrepared: the member built the work of a shard that it should own and another member
	// holds, and filled its caches, in Duration. Term is the holder's.
	EventPrepared election.EventType = "prepared"
	// EventBegun: the work is about to run, from prepared caches, or from empty ones because of
	// Err. Duration is how long the caches took to see what was written last.
	EventBegun election.EventType = "begun"
	// EventReady: the work is prepared and waits until shards of an older plan generation are
	// released.
	EventReady election.EventType = "ready"
	// EventRunning: the work is under way. Acquisition says how the shard came here. Duration is
	// Acquisition.Unowned.
	EventRunning election.EventType = "running"
	// EventRefused: the member gave a claim back before anything ran, because of Err; see
	// Acquisition.
	EventRefused election.EventType = "refused"
	// EventAbandoned: a claim ended before anything ran, and was not refused; see Acquisition.
	EventAbandoned election.EventType = "abandoned"
	// EventWriteRefused: a fence refused a write of the shard's work. Reason is an
	// election.Refusal. It may come many times a second and from any goroutine.
	EventWriteRefused election.EventType = "write-refused"
	// EventOverdue: the work was asked to stop and did not return within HandoffTimeout, so the
	// fence refuses its writes. Duration is how long it may still go on before the process ends.
	EventOverdue election.EventType = "overdue"
	// EventForgotten: the member is done with the shard, because the shard has left the plan or the
	// member is stopping. Only EventWriteRefused may follow, unless the shard comes back.
	EventForgotten election.EventType = "forgotten"
	// EventPlanWritten: this member sent a plan to the plan's Lease in Duration. Err is set if that
	// failed.
	EventPlanWritten = planner.EventWritten
	// EventPlanAdopted: a plan has come into force.
	EventPlanAdopted election.EventType = "plan-adopted"
	// EventPlanRestored: this member restored the last good plan after somebody had spoilt it.
	EventPlanRestored = planner.EventRestored
	// EventPlanAdapted: this member changed the plan for the builds of the members. Err describes
	// the changes.
	EventPlanAdapted = planner.EventAdapted
	// EventRetired: this member emptied the Lease of a shard that the plan does not have, or of a
	// member that is gone for good, or failed to because of Err.
	EventRetired = planner.EventRetired
	// EventFenced: a dead incarnation, Holder, was fenced on its member's Lease, in Duration.
	EventFenced = fencing.EventFenced
	// EventFenceRefused: the API server did not let this member write the mark, because of Err. The
	// dead incarnation may be its own last one.
	EventFenceRefused = fencing.EventRefused
	// EventPlanRefused: the plan on the plan's Lease cannot be used because of Err. The last good
	// one stays in force, or comes into force if the member has just started. Err wraps
	// ErrWithoutPlan if no good plan is known.
	EventPlanRefused election.EventType = "plan-refused"
)

func (c Config) rings() string { return strings.Join(slices.Sorted(slices.Values(c.Rings)), ",") }

// Event is an event of a shard's claim, or of the member's Lease, in which case ID is zero.
type Event struct {
	election.Event
	ID shard.ID
	// Acquisition is set on EventRunning, EventRefused and EventAbandoned. One of them ends each
	// acquisition that began with an EventAcquired.
	Acquisition *Acquisition
	// Handover is set on a shard's EventReleased.
	Handover *Handover
}
