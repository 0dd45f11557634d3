package fleet

import (
	"context"
	"errors"

	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
)

// ErrFenced is returned by Run when another member has fenced this incarnation.
var ErrFenced = errors.New("fenced by another member")

// PublishCredential writes the id of a credential of this process's controllers to the member's
// Lease, so that others can fence it. If the API server enforces the fence, PublishCredential
// returns once the id is there, and after an error the credential must not be used. Otherwise it
// does not wait.
func (m *Member) PublishCredential(ctx context.Context, c membership.Credential) error {
	if !m.config.Enforced() {
		m.membership.Announce(c)
		return nil
	}
	// By this deadline the member's Lease has been renewed or is lost.
	ctx, cancel := context.WithTimeout(ctx, m.config.Timing.RenewDeadline)
	defer cancel()
	return m.membership.Publish(ctx, c)
}

// fenceOff fences the holders that these Leases name, because they did not release the Leases, and
// whoever else died without a mark. It returns once the API server refuses what they may still
// send; nobody runs what the shard covers before that. It returns false if ctx has ended. Even then
// it goes on, for at most HandoffTimeout until they are marked, and then for FenceDelay: the next
// holder may be of a build that fences nobody if the Lease was released.
func (r *shardRunner) fenceOff(ctx context.Context, claim *election.Claim, leases []election.Observation) bool {
	m, held := r.member, klog.NewContext(claim.Context(), klog.FromContext(ctx))
	marking, cancel := context.WithCancel(held)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		afterOrDone(m.config.Clock.NewTimer(m.config.HandoffTimeout), marking.Done(), cancel)
	})()
	var holders []string
	for _, o := range leases {
		holders = append(holders, o.Holder)
	}
	last := m.fencing.Since(marking, holders...)
	cut := marking.Err() != nil
	if left := last.Add(m.config.FenceDelay).Sub(m.config.Clock.Now()); left > 0 {
		m.pause(held, left)
	}
	if cut || held.Err() != nil {
		r.setWrites(nil) // the Lease's record of last writes proves nothing
		return false
	}
	return ctx.Err() == nil
}
