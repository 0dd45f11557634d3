package fleet

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/flotilla-kube/flotilla/pkg/election"
)

// duty is whom the holder of a shard has still to fence: what its Lease says of it. Its methods are
// safe for concurrent use.
type duty struct {
	mu   sync.Mutex
	term int32
	owed []string
}

// begin records whom the holder of term has to fence.
func (d *duty) begin(term int32, owed []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.term, d.owed = term, owed
}

// done records that an incarnation is fenced.
func (d *duty) done(incarnation string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owed = slices.DeleteFunc(slices.Clone(d.owed), func(owed string) bool { return owed == incarnation })
}

// annotation returns what the Lease has to say of the duty in a term; nothing, which leaves it as
// it is, if another one began it.
func (d *duty) annotation(term int32) map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.term == 0 || d.term != term {
		return map[string]string{}
	}
	return map[string]string{election.UnfencedAnnotation: strings.Join(d.owed, ",")}
}

// fenceOffAll fences everybody who may still write on what the shard covers, although it does not
// hold it any more: the last holder, if it did not release the Lease, those whom it had to fence
// itself, and those of dead, the Leases of others. The duty is on the Lease since the acquisition,
// and is removed from there once the marks are acknowledged: until then the next holder has it.
// False says that ctx has ended.
func (r *shardRunner) fenceOffAll(ctx context.Context, claim *election.Claim, dead []election.Observation) bool {
	if !r.fenceOffDead(ctx, dead) {
		return false
	}
	owed := r.owed(claim.Before())
	if len(owed) > 0 && r.member.config.Enforced() {
		defer r.claimant.Touch()
	}
	for _, incarnation := range owed {
		acknowledged, ok := r.member.fenceOff(ctx, incarnation)
		if acknowledged {
			r.duty.done(incarnation)
		}
		if !ok {
			return false
		}
	}
	return ctx.Err() == nil
}

// fenceOffDead fences whoever may still write under the Leases of other shards, which nobody
// holds any more. It returns false if ctx has ended.
func (r *shardRunner) fenceOffDead(ctx context.Context, dead []election.Observation) bool {
	for _, o := range dead {
		for _, incarnation := range append(o.Unfenced(), o.Holder) {
			if _, ok := r.member.fenceOff(ctx, incarnation); !ok {
				return false
			}
		}
	}
	return ctx.Err() == nil
}

// owed returns whom the holder of a Lease that was acquired as before has to fence.
func (r *shardRunner) owed(before election.Observation) []string {
	var owed []string
	for _, incarnation := range append(before.Unfenced(), before.Holder) {
		if incarnation != "" && incarnation != r.member.incarnation && !slices.Contains(owed, incarnation) {
			owed = append(owed, incarnation)
		}
	}
	return owed
}
