package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// planChange is 'flotilla plan apply --wait' of an edited plan.
type planChange struct {
	env   *environment
	edit  func(shard.Plan, *rand.Rand) shard.Plan
	was   shard.Plan
	began time.Time
}

// Command implements operation.
func (p *planChange) Command(ctx context.Context) ([]string, error) {
	env := p.env
	var err error
	if _, p.was, err = env.planNow(ctx); err != nil {
		return nil, err
	}
	document, err := p.edit(p.was, env.random).Document()
	if err != nil {
		return nil, err
	}
	p.began = time.Now()
	file := filepath.Join(env.config.dir, fmt.Sprintf("plan-%d.json", p.was.Generation))
	return []string{"plan", "apply", "--wait", "--filename=" + file}, os.WriteFile(file, []byte(document), 0o644)
}

// Begun implements operation.
func (p *planChange) Begun(lease *coordinationv1.Lease) bool {
	if lease.Name != leaseapi.PlanLease(fleetName) {
		return false
	}
	plan, err := leaseapi.PlanOn(lease)
	if err != nil || plan.Generation <= p.was.Generation {
		return false
	}
	p.env.adopt(plan)
	return true
}

// Done implements operation: a live member holds every shard of the plan, and no other shard.
func (p *planChange) Done(ctx context.Context) error {
	if err := p.env.held(p.began); err != nil {
		return err
	}
	return p.env.followed(ctx)
}

// Undo implements operation.
func (p *planChange) Undo(ctx context.Context) error {
	p.began = time.Now()
	if err := p.env.putBack(ctx); err != nil {
		return err
	}
	_, err := p.env.await(ctx, p.env.wholeLimit(), "the plan of before is followed", p.Done)
	return err
}

// splitShard halves a range.
func splitShard(plan shard.Plan, random *rand.Rand) shard.Plan {
	ring := editableRing(&plan)
	i := random.IntN(len(ring.Shards))
	low := ring.Shards[i]
	low.Name = ""
	high := low
	// Unsigned arithmetic gives the right length even for a range that ends at 0, except for the
	// whole keyspace.
	half := (low.Range.End - low.Range.Start) / 2
	if half == 0 {
		half = 1 << 63
	}
	low.Range.End = low.Range.Start + half
	high.Range.Start = low.Range.End
	ring.Shards = slices.Replace(ring.Shards, i, i+1, low, high)
	return plan
}

// moveJobs moves the job controllers to a ring of their own. Every range that they leave becomes a
// new shard without them.
func moveJobs(plan shard.Plan, _ *rand.Rand) shard.Plan {
	jobs := []string{"cronjob-controller", "job-controller", "ttl-after-finished-controller"}
	ring := editableRing(&plan)
	ring.Controllers = slices.DeleteFunc(slices.Clone(ring.Controllers), func(c string) bool { return slices.Contains(jobs, c) })
	batch := shard.Ring{Name: "batch", Scope: shard.ScopeNamespaced, Controllers: jobs}
	for _, r := range []shard.Range{{Start: 0, End: 1 << 63}, {Start: 1 << 63, End: 0}} {
		batch.Shards = append(batch.Shards, shard.Shard{ID: shard.ID{Ring: batch.Name}, Range: r})
	}
	plan.Rings = append(plan.Rings, batch)
	return plan
}

// editableRing replaces the plan's ring of namespaces with a copy, and returns the copy.
func editableRing(plan *shard.Plan) *shard.Ring {
	plan.Rings = slices.Clone(plan.Rings)
	ring := &plan.Rings[slices.IndexFunc(plan.Rings, func(r shard.Ring) bool { return r.Name == catalogue.NamespacesRing })]
	ring.Shards = slices.Clone(ring.Shards)
	return ring
}

// drain is 'flotilla drain' of a member at work.
type drain struct {
	env    *environment
	member *manager
	began  time.Time
}

// Command implements operation.
func (d *drain) Command(ctx context.Context) ([]string, error) {
	var err error
	if d.member, err = d.env.loadedVictim(ctx); err != nil {
		return nil, err
	}
	d.began = time.Now()
	return []string{"drain", d.member.member}, nil
}

// Begun implements operation.
func (d *drain) Begun(lease *coordinationv1.Lease) bool {
	return lease.Name == leaserecord.MemberLease(fleetName, d.member.member) && lease.Annotations[leaseapi.DrainAnnotation] != ""
}

// Done implements operation: others hold all shards, even if the member has restarted in the
// meantime.
func (d *drain) Done(context.Context) error {
	return d.env.held(d.began, d.member.name)
}

// Undo implements operation.
func (d *drain) Undo(ctx context.Context) error {
	command, err := d.env.operate("undrain", d.member.member)
	if err != nil {
		return err
	}
	return d.env.finished(ctx, command)
}

// undrain undrains all members.
func (env *environment) undrain(ctx context.Context) error {
	for _, name := range env.opts.members() {
		err := env.tamper(ctx, leaserecord.MemberLease(fleetName, name), func(l *coordinationv1.Lease) *coordinationv1.Lease {
			delete(l.Annotations, leaseapi.DrainAnnotation)
			return l
		})
		if err != nil {
			return err
		}
	}
	return nil
}
