package status

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// State is the state of a shard in one word.
type State string

const (
	// StateRunning: the holder says that it runs the shard.
	StateRunning State = "running"
	// StateStarting: the Lease is held, and its holder has not said yet that it runs; that takes a
	// renewal.
	StateStarting State = "starting"
	// StateWaiting: the Lease is held, and a shard of an older generation still runs some of it.
	StateWaiting State = "waiting"
	// StateOlder: nobody holds the Lease yet, and a shard of an older generation still runs some of
	// it.
	StateOlder State = "older"
	// StateLockedOut: nobody of the fleet holds it, because somebody else holds the fleet's leader
	// lock and runs the controllers.
	StateLockedOut State = "locked-out"
	// StateStopped: nobody holds it, because an operator has stopped the fleet.
	StateStopped State = "stopped"
	// StateUnowned: neither this shard nor an older one that covers it has an unexpired holder.
	StateUnowned State = "unowned"
)

// View is a fleet at a glance: what 'flotilla plan show' and 'flotilla status' print.
type View struct {
	Fleet string `json:"fleet"`
	// Fault says why the plan on the Lease cannot be read; there are no rings then.
	Fault      string `json:"fault,omitempty"`
	Generation int64  `json:"generation,omitempty"`
	Digest     string `json:"digest,omitempty"`
	// AsOf is the latest renewal of any member's Lease.
	AsOf    *time.Time   `json:"asOf,omitempty"`
	Rings   []RingView   `json:"rings,omitempty"`
	Older   []OlderView  `json:"older,omitempty"`
	Members []MemberView `json:"members"`
	// LeaderLocks are the Leases of others that the fleet waits for.
	LeaderLocks []LeaderLockView `json:"leaderLocks,omitempty"`
	// Stop is set if an operator has stopped the fleet.
	Stop *StopView `json:"stop,omitempty"`
	// Canary is set if the plan has one.
	Canary *CanaryView `json:"canary,omitempty"`
	// Versions are what live members of each version have and do, if the plan has a canary or they
	// are of several versions.
	Versions []VersionView `json:"versions,omitempty"`
	// Warnings are the messages of the findings about the fleet as a whole.
	Warnings []string `json:"warnings,omitempty"`
	// Findings are what an operator should look at, the worst first.
	Findings []Finding `json:"findings,omitempty"`

	// Now is when it was read: ages are as of it.
	Now time.Time `json:"-"`
}

// RingView is a ring of the plan.
type RingView struct {
	Name        string      `json:"name"`
	Scope       shard.Scope `json:"scope"`
	Controllers []string    `json:"controllers,omitempty"`
	Isolate     []string    `json:"isolate,omitempty"`
	// Members are the live members that serve the ring.
	Members []string    `json:"members"`
	Shards  []ShardView `json:"shards"`
}

// ShardView is a shard of the plan and what its Lease says.
type ShardView struct {
	// Shard is "<ring>/<name>".
	Shard       string   `json:"shard"`
	Range       string   `json:"range,omitempty"`
	Group       string   `json:"group,omitempty"`
	Controllers []string `json:"controllers,omitempty"`
	// Weight is how many objects there were when the shard was cut; Objects is its holder's latest
	// count.
	Weight  int64  `json:"weight,omitempty"`
	Objects *int64 `json:"objects,omitempty"`
	// Memory is the estimate of what it takes of its holder's heap, in bytes.
	Memory       *int64 `json:"memory,omitempty"`
	Pin          string `json:"pin,omitempty"`
	Home         string `json:"home,omitempty"`
	ColocateWith string `json:"colocateWith,omitempty"`
	// Owner is the owner by the plan's pin or home; empty if the plan leaves it to the consistent
	// hashing.
	Owner string `json:"owner,omitempty"`
	// Wanted is the owner as members compute it from plan and roster, computed here; empty if no
	// member serves the ring.
	Wanted string `json:"wanted,omitempty"`
	State  State  `json:"state"`
	// Unprepared is set while the shard waits and its holder has not prepared everything yet.
	Unprepared bool `json:"unprepared,omitempty"`
	Claim
	// Older are the held Leases of older generations that cover some of the shard.
	Older []string `json:"older,omitempty"`
}

// Claim is what a Lease says about its holder.
type Claim struct {
	// Holder is the member, Incarnation the process start. A holder that is not an incarnation of a
	// member has only Holder.
	Holder      string `json:"holder,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
	// Silent: the holder has not renewed for longer than the Lease's duration.
	Silent bool `json:"silent,omitempty"`
	// Since is when it acquired the Lease, by its own clock, for this term.
	Since *time.Time `json:"since,omitempty"`
	Term  int32      `json:"term"`
	// NextHolder is the incarnation that has asked for the Lease.
	NextHolder string `json:"nextHolder,omitempty"`
	// Problem says which fields of the Lease are nonsense.
	Problem string `json:"problem,omitempty"`
}

// OlderView is a held Lease of a shard that is not in the plan.
type OlderView struct {
	Lease string `json:"lease"`
	Range string `json:"range,omitempty"`
	// Generation is the generation of the holder's plan when it wrote.
	Generation string `json:"generation,omitempty"`
	Claim
}

// MemberView is a member, and what it says about itself.
type MemberView struct {
	Name        string `json:"name"`
	Incarnation string `json:"incarnation,omitempty"`
	// State is joining, active or leaving, as the member says; or silent, or gone if it has
	// released its Lease.
	State string `json:"state"`
	// Rings are those it serves, "*" for all; Generation is the generation of its plan.
	Rings      string     `json:"rings"`
	Generation string     `json:"generation,omitempty"`
	Since      *time.Time `json:"since,omitempty"`
	Shards     int        `json:"shards"`
	// Objects is its latest count in the shards that it holds; nil if there is none.
	Objects *int64 `json:"objects,omitempty"`
	// Memory is the heap that it says it uses, and Estimated the estimate of what its shards and
	// everything else in the process take of it, in bytes; nil if it does not say, or if the
	// estimate of a shard that it holds is missing.
	Memory    *int64 `json:"memory,omitempty"`
	Estimated *int64 `json:"estimatedMemory,omitempty"`
	// CPU is its mean processor use by its own word, in cores, over some ten seconds, and Queued
	// how many items wait in its workqueues; nil if it does not say.
	CPU    *float64 `json:"cpu,omitempty"`
	Queued *int64   `json:"queued,omitempty"`
	// Share is the part of the keyspace that it holds, from 0 to 1, the mean over all namespaced
	// rings; nil without a plan.
	Share *float64 `json:"share,omitempty"`
	// Heartbeat is when it last renewed its Lease; its age is as of the view's AsOf.
	Heartbeat *time.Time `json:"heartbeat,omitempty"`
	// Version is the version of its build; empty if it does not say.
	Version string `json:"version,omitempty"`
	// Node and Zone are where it runs; empty if it does not say.
	Node string `json:"node,omitempty"`
	Zone string `json:"zone,omitempty"`
	// Drained: an operator has drained it, so it gets no shards.
	Drained bool `json:"drained,omitempty"`
	// Still: it runs nothing, because an operator has stopped the fleet.
	Still bool `json:"still,omitempty"`
	// Digest is the digest of its plan.
	Digest string `json:"digest,omitempty"`
	// Refuses is the generation that the member refuses, and why.
	Refuses string `json:"refuses,omitempty"`
}

// Of returns the plan in force, who runs what, and what is wrong.
func Of(r *Reading) View {
	v := View{Fleet: r.Fleet, AsOf: Stamp(r.AsOf), Members: Members(r), LeaderLocks: r.LeaderLocks(), Stop: r.stop, Canary: r.Canary(), Findings: Findings(r), Now: r.Now}
	v.Warnings = warningsOf(v.Findings)
	versions := Versions(r)
	known := len(slices.DeleteFunc(slices.Clone(versions), func(v VersionView) bool { return v.Version == "" }))
	if v.Canary != nil || known > 1 {
		v.Versions = versions
	}
	older := r.Older()
	if r.Fault != nil {
		v.Fault = r.Problem().Error()
	} else {
		v.Generation, v.Digest = r.Plan.Generation, r.Plan.Digest()
		for _, ring := range r.Plan.Rings {
			v.Rings = append(v.Rings, viewRing(r, ring, older))
		}
	}
	for _, o := range older {
		v.Older = append(v.Older, OlderView{Lease: o.Name, Range: o.Annotations[leaseapi.RangeAnnotation], Generation: o.Annotations[leaseapi.GenerationAnnotation], Claim: ClaimOf(r, o)})
	}
	return v
}

// NewerMember returns a live member that reads a newer format of plans than this build; empty if
// there is none. Then a plan that cannot be read here may be right.
func (r *Reading) NewerMember() string {
	own, _ := strconv.Atoi(leaseapi.PlanFormat)
	for _, m := range r.Roster.Members() {
		if format, err := strconv.Atoi(m.Annotations[leaseapi.FormatAnnotation]); err == nil && format > own {
			return m.Name
		}
	}
	return ""
}

// Problem returns why there is no usable plan, and what to do.
func (r *Reading) Problem() error {
	if errors.Is(r.Fault, leaseapi.ErrNoPlan) {
		return fmt.Errorf("fleet %q has no plan on Lease %s: the first member that starts writes one", r.Fleet, leaseapi.PlanLease(r.Fleet))
	}
	if name := r.NewerMember(); name != "" {
		return fmt.Errorf("the plan cannot be read: %w. This command is older than member %s: use one of its version", r.Fault, Plain(name))
	}
	return fmt.Errorf("the plan cannot be used: %w. Members that run keep the last good one; "+
		"if it is not put back by itself, replace it with 'flotilla plan apply'", r.Fault)
}

func viewRing(r *Reading, ring shard.Ring, older []election.Observation) RingView {
	v := RingView{Name: ring.Name, Scope: ring.Scope, Controllers: ring.Controllers, Isolate: ring.Isolate, Members: leaseapi.ServersOf(r.Roster.Members(), ring.Name)}
	for _, s := range ring.Shards {
		v.Shards = append(v.Shards, ViewShard(r, s, older))
	}
	return v
}

// ViewShard returns the view of a shard of the plan; older are the held Leases that Reading.Older
// returns.
func ViewShard(r *Reading, s shard.Shard, older []election.Observation) ShardView {
	o := r.ShardLease(s.ID)
	extent, _ := r.Plan.Extent(s.ID)
	v := ShardView{
		Shard: s.ID.String(), Group: s.Group, Controllers: s.Controllers, Weight: s.Weight, Pin: s.Pin, Home: s.Home, ColocateWith: s.ColocateWith,
		Owner: s.PreferredMember(), Wanted: r.owner(s.ID), Claim: ClaimOf(r, o),
	}
	if s.Namespaced() {
		v.Range = s.Range.String()
		if census, published := leaseapi.CensusOn(o); published {
			total := census.Within(s.Range).Total()
			v.Objects = &total
		}
	}
	if memory, published := leaseapi.ShardMemoryOn(o); published {
		total := memory.Total()
		v.Memory = &total
	}
	blocking := Covering(older, "", extent)
	for _, b := range blocking {
		v.Older = append(v.Older, b.Name)
	}
	v.State = StateOf(r, o, len(blocking) > 0)
	v.Unprepared = v.State == StateWaiting && !r.isPrepared(o)
	return v
}

// StateOf returns the state of the shard whose Lease is o; older reports whether a held Lease of an
// older generation covers some of it.
func StateOf(r *Reading, o election.Observation, older bool) State {
	switch held := r.IsHeld(o); {
	case held && leaseapi.SaysRunning(o):
		return StateRunning
	case held && older, r.isPrepared(o):
		return StateWaiting
	case held:
		return StateStarting
	case older:
		return StateOlder
	case r.stop.stops():
		return StateStopped
	case r.leaderLock != nil:
		return StateLockedOut
	default:
		return StateUnowned
	}
}

// isPrepared reports whether the holder of a shard that waits for older ones has prepared
// everything.
func (r *Reading) isPrepared(o election.Observation) bool {
	return r.IsHeld(o) && leaseapi.SaysReady(o)
}

// ClaimOf returns what a Lease says about its holder.
func ClaimOf(r *Reading, o election.Observation) Claim {
	c := Claim{Term: o.Transitions, NextHolder: o.NextHolder(), Problem: o.Problem}
	if o.Holder == "" {
		c.Problem = "" // a released Lease has no duration
		return c
	}
	c.Holder, c.Incarnation, c.Since, c.Silent = leaserecord.MemberOf(o.Holder), o.Holder, Stamp(o.AcquireTime), !r.IsHeld(o)
	return c
}

// Members returns the members with a Lease, by name.
func Members(r *Reading) []MemberView {
	views, shares := []MemberView{}, sharesOf(r)
	for _, o := range r.sorted {
		name, ok := leaseapi.MemberOn(r.Fleet, o)
		if !ok || o.IsRetired() {
			continue
		}
		member, live := r.Roster.Get(name)
		v := MemberView{
			Name: name, Incarnation: o.Holder, State: string(member.State), Rings: o.Annotations[leaseapi.RingsAnnotation],
			Generation: o.Annotations[leaseapi.GenerationAnnotation], Since: Stamp(o.AcquireTime), Refuses: o.Annotations[leaseapi.RefusedAnnotation],
			Heartbeat: Stamp(o.Seen), Drained: o.Annotations[leaseapi.DrainAnnotation] != "", Still: live && o.Annotations[leaseapi.StillAnnotation] != "", Digest: o.Annotations[leaseapi.PlanAnnotation],
			Node: o.Annotations[leaseapi.NodeAnnotation], Zone: o.Annotations[leaseapi.ZoneAnnotation],
		}
		switch {
		case !live && o.Holder == "":
			v.State = "gone"
		case !live:
			v.State = "silent"
		}
		if v.Rings == "" {
			v.Rings = "*"
		}
		if memory, published := leaseapi.MemoryOn(o); published && live {
			v.Memory, v.Estimated = &memory.Live, &memory.Beside
		}
		if known, says := leaseapi.KnownOf(member); live && says {
			v.Version = known.Version
		}
		if use, published := leaseapi.UseOn(o); published && live {
			cores := float64(use.CPU) / 1000
			v.CPU, v.Queued = &cores, &use.Queued
		}
		if shares != nil {
			share := shares[name]
			v.Share = &share
		}
		for _, s := range r.sorted {
			if r.isShard(s) && s.Holder != "" && leaserecord.MemberOf(s.Holder) == name && r.IsHeld(s) {
				v.Shards++
				v.count(s)
			}
		}
		views = append(views, v)
	}
	return views
}

// sharesOf returns the part of the keyspace that each member holds by the plan's shards, the mean
// over all namespaced rings; nil if there is no plan.
func sharesOf(r *Reading) map[string]float64 {
	if r.Fault != nil {
		return nil
	}
	shares, rings := map[string]float64{}, 0
	for _, ring := range r.Plan.Rings {
		if ring.Scope == shard.ScopeNamespaced {
			rings++
		}
	}
	for _, s := range r.Plan.Shards() {
		if o := r.ShardLease(s.ID); s.Namespaced() && r.IsHeld(o) {
			// The difference wraps around to the right width if the range ends with the keyspace,
			// except for the whole keyspace.
			width := float64(s.Range.End - s.Range.Start)
			if s.Range.IsEverything() {
				width = 1 << 64
			}
			shares[leaserecord.MemberOf(o.Holder)] += width / (1 << 64) / float64(rings)
		}
	}
	return shares
}

// count adds the weight and the memory of a held shard.
func (v *MemberView) count(o election.Observation) {
	if memory, published := leaseapi.ShardMemoryOn(o); published && v.Estimated != nil {
		*v.Estimated += memory.Total()
	} else {
		v.Estimated = nil
	}
	if census, published := leaseapi.CensusOn(o); published {
		total := census.Total()
		if v.Objects != nil {
			total += *v.Objects
		}
		v.Objects = &total
	}
}
