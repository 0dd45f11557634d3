package cli

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Edit is a change of plan that has passed every check.
type Edit struct {
	// From is the plan in force, zero if there is none; Next should replace it.
	From, Next shard.Plan
	// Changes is what Next changes, without the homes of Kept shards.
	Changes []shard.Change
	// Replaces says why the plan on the Lease could not be used, if so.
	Replaces string
	// Kept are the shards that get their holders as homes, so that they stay where they are.
	Kept     []shard.ID
	Warnings []string
	// vouches is set if the Lease does not keep the last good plan: members that start may wait for
	// an operator's confirmation.
	vouches bool
}

// Same reports whether there is nothing to write.
func (e Edit) Same() bool {
	return e.Replaces == "" && !e.vouches && e.From.Digest() == e.Next.Digest()
}

// ErrChanged says that an edited plan was not based on the one in force.
var ErrChanged = errors.New("somebody has changed the plan since: read it again with 'flotilla plan show -o document'")

// errCanary says which command changes the canary of a plan.
var errCanary = errors.New("'flotilla canary' begins and ends one")

// ParseDocument reads an edited plan. It leaves Validate's checks to [Prepare], which first fixes
// names, order and isolated namespaces.
func ParseDocument(text []byte) (shard.Plan, error) {
	plan, err := shard.ParsePlan(text)
	if err != nil && plan.Generation == 0 && len(plan.Rings) == 0 {
		return shard.Plan{}, err // not a plan at all
	}
	return plan, nil
}

// Prepare makes the edited plan the successor of the one in force. The error says why it cannot be.
// check returns the build's objections to a plan.
func Prepare(r *status.Reading, edited shard.Plan, check func(shard.Plan) error) (Edit, error) {
	e := Edit{From: r.Plan}
	var err error
	switch {
	case r.Fault != nil && !errors.Is(r.Fault, leaseapi.ErrNoPlan) && r.NewerMember() != "":
		return Edit{}, r.Problem()
	case r.Fault != nil:
		e.From, e.Replaces = shard.Plan{}, r.Fault.Error()
		e.Next, err = replacement(r, edited)
	case edited.Generation != r.Plan.Generation:
		return Edit{}, fmt.Errorf("generation %d: the plan in force has generation %d: %w", edited.Generation, r.Plan.Generation, ErrChanged)
	case !edited.Canary.Equal(r.Plan.Canary):
		return Edit{}, fmt.Errorf("canary: must be left as it is: %w", errCanary)
	default:
		if e, err = e.become(r, edited); err == nil {
			e.keepHomes(r)
			err = shard.CheckSuccessor(r.Plan, e.Next)
		}
	}
	if err != nil {
		return Edit{}, err
	}
	return e.checked(r, check)
}

// checked completes an edit whose From and Next are set.
func (e Edit) checked(r *status.Reading, check func(shard.Plan) error) (Edit, error) {
	e.Changes = shard.Diff(e.From, e.Next)
	// If all controllers stay where they are, this build has no objection to the edit. It may have
	// one to the plan in force: members may have another minor version than the command, say while
	// an operator tries a new one.
	if slices.ContainsFunc(e.Changes, func(c shard.Change) bool { return c.Kind == shard.ChangeController }) {
		if err := check(e.Next); err != nil {
			return Edit{}, err
		}
	}
	for i, ring := range e.Next.Rings {
		_, known := e.From.Ring(ring.Name)
		if live := r.Roster.Members(); !known && r.Fault == nil && len(leaseapi.ServersOf(live, ring.Name)) == 0 {
			return Edit{}, fmt.Errorf("rings[%d].name: %q is served by no live member: start members with --rings=%s first", i, ring.Name, ring.Name)
		}
	}
	e.Changes = slices.DeleteFunc(e.Changes, func(c shard.Change) bool { return slices.Contains(e.Kept, c.ID) })
	e.Warnings = status.PlanWarnings(r, e.Next)
	if e.Replaces != "" && !errors.Is(r.Fault, leaseapi.ErrNoPlan) {
		e.Warnings = append(e.Warnings, "the plan on the Lease is replaced, since it cannot be used: "+e.Replaces)
	}
	if len(r.Leases()) == 0 {
		e.Warnings = append(e.Warnings, fmt.Sprintf("there are no Leases of fleet %s: the plan will come into force when its first member starts; check --fleet-name and --leader-elect-resource-namespace", r.Fleet))
	}
	if silence, _ := r.Silence(); silence > 0 {
		e.Warnings = append(e.Warnings, "no member seems to run: the plan will come into force when one does")
	}
	return e, nil
}

// keepHomes makes holders the homes of shards that stay where namespaced rings are cut again:
// without homes, the consistent hashing would move some of them.
func (e *Edit) keepHomes(r *status.Reading) {
	holders := r.Holders()
	for _, ring := range e.Next.Rings {
		was, found := e.From.Ring(ring.Name)
		if !found || ring.Scope != shard.ScopeNamespaced || slices.Equal(was.IDs(), ring.IDs()) {
			continue
		}
		e.Next = e.homesKept(r, e.Next, ring.Name, holders)
	}
}

// homesKept returns the plan with holders as homes for those shards of a ring that were in From,
// have no home yet, and are held by a member that serves the ring.
func (e *Edit) homesKept(r *status.Reading, plan shard.Plan, ring string, holders map[shard.ID]string) shard.Plan {
	known := leaseapi.ServersOf(r.Known, ring)
	return assignment.KeepHomes(plan, ring, func(id shard.ID) string {
		if _, stays := e.From.Shard(id); !stays || !slices.Contains(known, holders[id]) {
			return ""
		}
		e.Kept = append(e.Kept, id)
		return holders[id]
	})
}

// become makes the edited plan the next one.
func (e Edit) become(r *status.Reading, edited shard.Plan) (Edit, error) {
	_, unkept := leaseapi.LastGoodOn(r.PlanLease)
	e.vouches = unkept != nil
	var err error
	e.Next, err = r.Plan.Successor(edited)
	return e, err
}

// replacement returns the edited plan with a generation greater than any in the Leases. Its shards
// are named as in the last good plan. If the Lease does not keep that, they keep their names, if
// they have any: nobody knows which names were in use.
func replacement(r *status.Reading, edited shard.Plan) (shard.Plan, error) {
	latest := int64(0)
	for _, o := range r.Leases() {
		n, err := strconv.ParseInt(o.Annotations[leaseapi.GenerationAnnotation], 10, 64)
		if err == nil && n < shard.MaxGeneration { // none could follow
			latest = max(latest, n)
		}
	}
	if good, err := leaseapi.LastGoodOn(r.PlanLease); err == nil {
		good.Generation = max(latest, edited.Generation-1, good.Generation)
		return good.Successor(edited)
	}
	named := shard.Plan{Generation: max(latest, edited.Generation-1, 0), Rings: slices.Clone(edited.Rings)}
	for i, ring := range named.Rings {
		named.Rings[i].Shards = slices.DeleteFunc(slices.Clone(ring.Shards), func(s shard.Shard) bool { return !isLabel(s.Name) })
	}
	return named.Successor(edited)
}
