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
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// Leases is what a member does with Leases; client-go's LeaseInterface has it. Give
// it a client of its own: heartbeats must not wait behind the controllers' requests.
type Leases interface {
	election.LeaseReader
	election.LeaseWriter
}

// dialTimeout is how long a connection for Leases may take to be opened, and the time between
// probes of one that is silent: client-go's own.
const dialTimeout = 30 * time.Second

// LeaseConfig returns the configuration of a client for Leases alone, made from that of the
// member's process: neither rate limits nor what other connections are busy with may hold up a
// renewal. A dialer is what makes client-go open connections of their own: clients without one
// share those of every other client with the same certificate, and there an answer waits for all
// that was sent to informers before it.
func LeaseConfig(config *rest.Config, member string) *rest.Config {
	c := rest.CopyConfig(config)
	c.QPS, c.RateLimiter = -1, nil
	c.Timeout = 0 // each request has its own, watches have none
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}).DialContext
	}
	return rest.AddUserAgent(c, "fleet-member/"+member)
}

// MaxFleetName is the greatest length of a fleet's name. It leaves room for the ring and the shard
// in a Lease's name.
const MaxFleetName = 63

// Defaults of [Config].
const (
	DefaultHandoffTimeout = 5 * time.Second
	DefaultHandoffs       = 4
)

// Config configures a Member. Fields without a default are required.
type Config struct {
	// Fleet is the fleet's name, Member this member's, unique in the fleet.
	Fleet, Member string
	// Plan is the fleet's first plan: it is written where there is none. Members work by what is on
	// the plan's Lease.
	Plan shard.Plan
	// Check returns why this member could not work by a plan that is valid in itself, naming the
	// field, its value and what is allowed: an unknown controller for example. It must not block.
	// Default: it can work by any.
	Check func(shard.Plan) error
	// Catalogue is what this member's build knows of controllers: it runs no others, and says which
	// those are. Members may differ in it: docs/design/skew.md. Default: it knows all, and Check
	// alone says which plans it can work by.
	Catalogue skew.Build
	// Node and Zone are where the member runs, said on its Lease for people. Default: it does not
	// say.
	Node, Zone string
	// Rings are the names of the rings that the member serves. Default: all.
	Rings []string
	// LeaderLocks are the names of foreign Leases that the fleet must hold while any member runs.
	// Default: none.
	LeaderLocks []string
	// LeaderLockDelay is how long a leader lock must have been free of other holders before an idle
	// fleet begins: the stock controller manager releases its Lease as it begins to stop, and not
	// when it has stopped. A Lease that was absent, or that expired, has been free for longer.
	// Default 0; must not be negative.
	LeaderLockDelay time.Duration
	// Replanning is what this member does as the planner.
	Replanning Replanning
	// CensusInterval is how often holders say what their shards weigh. A sixth of it after they
	// have begun they do so for the first time; where a range has come to have clearly more or
	// fewer objects they do not wait for longer either. Default: a minute.
	CensusInterval time.Duration
	// Memory returns what the member says of its memory on its Lease, six times in a
	// CensusInterval. It may take a while. Default: it says nothing.
	Memory func() leaseapi.Memory
	// Use returns what the member says of what it uses else, at the same times, and from one
	// goroutine. Default: it says nothing.
	Use func() leaseapi.Use
	// Leases of the namespace that the fleet coordinates in.
	Leases Leases
	// Clock measures claims, and Work.Unheld. Default: election.NewClock().
	Clock election.Clock
	// Timing of all claims and of the membership.
	Timing election.Timing
	// RebalanceDelay is how long a member must have been there before it is given
	// shards, unless no other member is active. Default 0.
	RebalanceDelay time.Duration
	// Forgets reports whether a controller keeps only in memory what an operator could miss when it
	// begins again in another instance. Default: none does.
	Forgets func(controller string) bool
	// Build makes the work of a shard, which does nothing yet. An error is tried again.
	// ctx gives it its values; the work may not depend on its end.
	Build func(ctx context.Context, work Work) (Instance, error)
	// HandoffTimeout bounds the steps of a handoff: how long the work may go on writing
	// once it has been asked to stop, how long a member that leaves waits to be asked for
	// its shards, and how long what was prepared may take to have seen the last write.
	// Upstream's controllers work off all that is queued before they return; after this
	// time their writes are refused, so that they return soon. Default
	// DefaultHandoffTimeout.
	HandoffTimeout time.Duration
	// ShutdownTimeout is how long the work of a shard may take to return once its writes are
	// refused, while the member leaves the fleet: then the process ends, and the Lease is left
	// to expire. Default, and most: Timing.LeaseDuration, which is what it always is while the
	// member stays. Must not be negative.
	ShutdownTimeout time.Duration
	// Handoffs is how many shards the member prepares for at a time, while others hold
	// them. Default DefaultHandoffs.
	Handoffs int
	// Standby has the member keep the caches warm of those shards that it would own if
	// their holder failed. Default false.
	Standby bool
	// Enforced reports whether the API server refuses the credentials that are marked as fenced
	// on a member's Lease, see deploy/fence. It must not block. Default: it does not.
	Enforced func() bool
	// FenceDelay is how long after such a mark the shards of a dead member are run: the API
	// server must have seen it. Default 0; must not be negative, and at most HandoffTimeout: a
	// member that is to end waits for it, too.
	FenceDelay time.Duration
	// Observe is told every event of every claim, in order for each Lease, and those of
	// preparations, which may come at the same time. It must not block. Default: nobody is.
	Observe func(Event)
	// Exit ends the process at once. It is called when the work of a lost claim has
	// not returned by the time that others may take over, and when work that was asked to
	// stop has not returned long after its writes are refused, see ShutdownTimeout.
	Exit func(reason string)
}

// Instance is the work of one shard. Either Run is called, once, or Close. Warm and
// CatchUp may be called before.
type Instance interface {
	// Warm fills its caches and returns when they are full. They stay fresh. The error
	// says that ctx ended before.
	Warm(ctx context.Context) error
	// CatchUp returns once its caches, filled by Warm, have seen the writes; the error
	// says which has not when ctx ended.
	CatchUp(ctx context.Context, writes fence.Writes) error
	// Run does the work until ctx ends, and returns after all of it has ended. An error
	// says that it could not be started.
	Run(ctx context.Context) error
	// Close gives up what was built, and returns after all of it has ended.
	Close()
}

// Refresher is an Instance whose caches can be held against the present, so that they are of
// use after a holder that left nothing: for standbys.
type Refresher interface {
	// Refresh returns once its caches, filled by Warm, have seen all that was written before
	// the call; the error says which has not when ctx ended.
	Refresh(ctx context.Context) error
}

// Forgetter is an Instance that can give up what its caches hold.
type Forgetter interface {
	// Forget is called once Run or Close has returned and the fence lets nothing pass any more:
	// upstream's metrics and some goroutines outlive their controller, and might read that nothing
	// is there.
	Forget()
}

// Weigher is an Instance that can tell how much each namespace weighs, so that ranges can be
// balanced.
type Weigher interface {
	// Weigh returns how many objects its caches hold, by namespace; nil once the instance has
	// ended. It may be called while Run is under way.
	Weigh() map[string]int64
}

// Loader is an Instance that can tell how much memory it takes, so that groups are weighed like
// ranges.
type Loader interface {
	// Load returns an estimate; false once the instance has ended. It may be called while Run is
	// under way.
	Load() (Load, bool)
}

// Load is an estimate of the memory that the work of a shard takes.
type Load struct {
	// Namespaces has the bytes of what is cached for the shard alone, by namespace.
	Namespaces map[string]int64
	// Shared has the bytes of all else that is cached for the shard, Fixed those that it takes
	// without any object.
	Shared, Fixed int64
}

// Replanning says how the planner balances the ranges of namespaced rings. The zero value has it do
// nothing but put back a plan that was spoilt.
type Replanning struct {
	// Interval is how long the planner waits between two changes that the weights ask for, and
	// before its first; 0 is never. A shard that was moved or made for its weight rests for twelve
	// of these. Members that come or go are dealt with as soon as the last change is done.
	Interval time.Duration
	// Urgent is the ratio of the weight of the heaviest member to the least that it could be above
	// which the planner does not wait for Interval, while no member is away; greater than
	// Limits.Trigger, default 1.5.
	Urgent float64
	// Limits bound each change. Default: shard.DefaultLimits().
	Limits shard.Limits
}

// Work is what Build is given.
type Work struct {
	Shard shard.Shard
	// Controllers are the names of the controllers that the shard runs; none if the plan names only
	// such that the build does not have, see Config.Catalogue.
	Controllers []string
	// Share is how many shards of this ring a member is expected to hold, Shards how
	// many the ring has.
	Share, Shards int
	// Unheld is the time, by the fleet's Clock, since which nobody has been able to write on what
	// the shard covers, except a holder whose last writes the instance will catch up with. Caches
	// that were filled from later reads have seen all that earlier holders wrote. Zero if not
	// known.
	Unheld time.Time
	// Fence must be put beneath every client that the work writes with.
	Fence func(http.RoundTripper) http.RoundTripper
	// Term returns the term of the claim behind the fence: 0 before the shard is owned, and once
	// the fence is closed.
	Term func() int32
	// Closed is closed once the fence lets no write pass any more, for good.
	Closed <-chan struct{}
	// Running must be called once from within the instance's Run, when the work is under way and
	// waits for no cache any more. It does not block.
	Running func()
}

// Events that are not those of a claim.
const (
	// EventPrepared: what the member is to own, and another one holds, has been built and
	// its caches filled, which took Duration. Term is the holder's.
	EventPrepared election.EventType = "prepared"
	// EventBegun: the work is about to run, from caches that were prepared, or from
	// empty ones because of Err. Duration is how long it took to find that out: until they
	// had seen what was written last.
	EventBegun election.EventType = "begun"
	// EventReady: the work is prepared and waits for shards of an older plan generation to be
	// released.
	EventReady election.EventType = "ready"
	// EventRunning: the work is under way, and Acquisition says how the shard came here. Duration
	// is Acquisition.Unowned.
	EventRunning election.EventType = "running"
	// EventRefused: a claim was given back before anything ran, because of Err; see Acquisition.
	EventRefused election.EventType = "refused"
	// EventAbandoned: a claim ended before anything ran, otherwise than refused; see Acquisition.
	EventAbandoned election.EventType = "abandoned"
	// EventWriteRefused: a fence has refused a write of the shard's work; Reason is an
	// election.Refusal. It may come many times a second and from any goroutine.
	EventWriteRefused election.EventType = "write-refused"
	// EventOverdue: the work was asked to stop and has not returned within HandoffTimeout: its
	// writes are refused from now on. Duration is for how long it may still go on before the
	// process ends.
	EventOverdue election.EventType = "overdue"
	// EventForgotten: the member has nothing to do with the shard any more, because it has left the
	// plan or because the member stops. Nothing but EventWriteRefused comes after it, unless the
	// shard comes back.
	EventForgotten election.EventType = "forgotten"
	// EventPlanWritten: this member has sent a plan to the plan's Lease, which took Duration, and
	// failed if there is an Err.
	EventPlanWritten election.EventType = "plan-written"
	// EventPlanAdopted: a plan has come into force.
	EventPlanAdopted election.EventType = "plan-adopted"
	// EventPlanRestored: this member has put the last good plan back where somebody had spoilt it.
	EventPlanRestored election.EventType = "plan-restored"
	// EventPlanRefused: the plan on the plan's Lease cannot be used because of Err. The last good
	// one stays in force, or comes into force if the member has just started; Err wraps
	// ErrWithoutPlan if none is known.
	EventPlanRefused election.EventType = "plan-refused"
)

func (c Config) rings() string { return strings.Join(slices.Sorted(slices.Values(c.Rings)), ",") }

// Event is an event of a shard's claim, or of the member's Lease, whose ID is zero.
type Event struct {
	election.Event
	ID shard.ID
	// Acquisition is set on EventRunning, EventRefused and EventAbandoned: one of them ends each
	// that began with an EventAcquired.
	Acquisition *Acquisition
	// Handover is set on the EventReleased of a shard.
	Handover *Handover
}
