package membership

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

// process is a member with a real heartbeat and claims on some shards.
type process struct {
	*node
	membership *Membership
	claimants  map[string]*election.Claimant
	err        error

	mu     sync.Mutex
	turned time.Time // when its loops last iterated; zero for always
	// meanwhile, if set, is called once after a step has read the member's Lease and before it
	// writes.
	meanwhile func()
}

func shardLease(i int) string { return fmt.Sprintf("f-ns-%02d", i) }

// process starts a process that claims these shards.
func (h *harness) process(incarnation string, shards ...int) *process {
	h.T.Helper()
	clock := &leasetest.JumpClock{}
	p := h.processOn(clock, incarnation, shards...)
	p.clock = clock
	return p
}

// processOn is process with another clock.
func (h *harness) processOn(clock election.Clock, incarnation string, shards ...int) *process {
	h.T.Helper()
	n := h.newNode(incarnation, clock)
	delayed := func(string) leasetest.Fault { return leasetest.Fault{Out: time.Millisecond, Back: time.Millisecond} }
	n.client.Script(delayed)
	p := &process{node: n, claimants: map[string]*election.Claimant{}}
	var err error
	jitter := func(d time.Duration) time.Duration { return d }
	var leases Leases = n.client
	if h.wrap != nil {
		leases = h.wrap(n.client)
	}
	p.membership, err = New(Config{
		Fleet: "f", Incarnation: incarnation, Client: leases, Observer: n.observer, Clock: clock, Timing: election.DefaultTiming(),
		OnEvent: n.event, Jitter: jitter, Turned: p.lastTurned,
	})
	if err != nil {
		h.T.Fatal(err)
	}
	for _, i := range shards {
		p.claimants[shardLease(i)], err = election.NewClaimant(election.ClaimantConfig{
			Name: shardLease(i), Identity: incarnation, Client: n.client, Observer: n.observer, Clock: clock, Timing: election.DefaultTiming(),
			Heartbeat: p.membership, Revoked: p.membership.Lost(), Work: p.work,
			OnEvent: p.shardEvent, OnStuck: n.stuck, Jitter: jitter,
		})
		if err != nil {
			h.T.Fatal(err)
		}
	}
	n.Process = h.Run(p.run, n.observer.Run)
	return p
}

// run starts and stops the membership and the claims in a member's order.
func (p *process) run(ctx context.Context) {
	member, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- p.membership.Run(member) }()
	select {
	case <-p.membership.Joined():
	case <-p.membership.Lost():
	case <-ctx.Done():
	}
	var claims sync.WaitGroup
	working, cease := context.WithCancel(context.WithoutCancel(ctx))
	for _, c := range p.claimants {
		c.SetDesired(election.Held)
		claims.Go(func() { c.Run(working) })
	}
	select {
	case <-p.membership.Lost():
	case <-ctx.Done():
	}
	cease()
	claims.Wait()
	stop()
	p.err = <-ended
}

// work returns linger after it was asked to stop.
func (p *process) work(ctx context.Context, _ *election.Claim) {
	<-ctx.Done()
	time.Sleep(p.linger) // virtual
}

func (p *process) lastTurned() (time.Time, string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.meanwhile != nil {
		p.meanwhile()
		p.meanwhile = nil
	}
	return p.turned, "loop"
}

func (p *process) hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turned = p.clock.Now()
}

// shardEvent logs events of claims, with the shard's number.
func (p *process) shardEvent(e election.Event) {
	switch e.Type {
	case election.EventAcquired, election.EventEnded, election.EventReleased:
		p.Logf("%s %s %s %d %s", p.name, e.Type, strings.TrimPrefix(e.Name, "f-"), e.Term, e.Reason)
	}
}

// held counts the shards for which the process may write.
func (p *process) held() int {
	held := 0
	for _, c := range p.claimants {
		if claim := c.Claim(); claim != nil && claim.Valid(p.clock.Now()) {
			held++
		}
	}
	return held
}

// free puts released Leases of the shards into the store.
func (h *harness) free(shards ...int) {
	for _, i := range shards {
		l := leasetest.Lease(leaseName, "", 1)
		l.Name = shardLease(i)
		h.Store.Put(l)
	}
}

// only returns the lines of the transcript that contain one of these words.
func (h *harness) only(words ...string) []string {
	var found []string
	for _, line := range h.Lines() {
		for _, word := range words {
			if strings.Contains(line, word) {
				found = append(found, strings.TrimSpace(line))
				break
			}
		}
	}
	return found
}

// One strike frees all shards of a dead member, a lease duration after its last heartbeat.
func TestStrikeFreesAllShards(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1, 2, 3)
		a := h.process("a_1", 1, 2, 3)
		h.Sleep(s)
		b := h.process("b_1", 1, 2, 3)
		h.Sleep(3 * s) // a has renewed at 2, and b has seen it
		if a.held() != 3 || b.held() != 0 {
			t.Fatalf("a holds %d shards and b %d, want 3 and 0", a.held(), b.held())
		}
		a.client.Block()
		a.watch.Block()
		h.Sleep(6500 * time.Millisecond)
		if a.held() != 3 {
			t.Errorf("a holds %d shards before its renew deadline, want 3", a.held())
		}
		h.Sleep(4 * s)
		if a.held() != 0 || b.held() != 0 {
			t.Errorf("a holds %d shards and b %d after a's renew deadline, want none", a.held(), b.held())
		}
		h.Sleep(5 * s)
		if b.held() != 3 {
			t.Errorf("b holds %d shards a lease duration after a's last heartbeat, want 3:\n%s", b.held(), strings.Join(h.Lines(), "\n"))
		}
		if strikes := h.only("struck"); len(strikes) != 1 {
			t.Errorf("strikes: %q, want one", strikes)
		}
		if dead := leaserecord.From(h.Store.Get("f-member-a")); !dead.HasEnded("a_1") || dead.Holder != "" {
			t.Errorf("a's Lease names %q and lists %q as ended", dead.Holder, dead.Ended())
		}
	})
}

// A leaving member releases its shards one by one, and nobody has to wait.
func TestLeavingMemberIsNotStruck(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1, 2)
		a := h.process("a_1", 1, 2)
		h.Sleep(s)
		b := h.process("b_1", 1, 2)
		h.Sleep(3 * s)
		a.Stop()
		h.Sleep(100 * time.Millisecond)
		if b.held() != 2 || a.err != nil {
			t.Errorf("b holds %d shards, want 2; a ended with %v", b.held(), a.err)
		}
		if strikes := h.only("struck"); len(strikes) != 0 {
			t.Errorf("strikes: %q, want none", strikes)
		}
		if left := leaserecord.From(h.Store.Get("f-member-a")); !left.HasEnded("a_1") || left.Holder != "" {
			t.Errorf("a's Lease names %q and lists %q as ended, want itself", left.Holder, left.Ended())
		}
	})
}

// An idle fleet writes one Lease per member and retry period, however many shards there are.
func TestIdleFleetWritesOnlyHeartbeats(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		var shards []int
		for i := range 20 {
			shards = append(shards, i)
		}
		h.free(shards...)
		a, b := h.process("a_1", shards[:10]...), h.process("b_1", shards[10:]...)
		h.Sleep(10 * s)
		before := len(h.Store.History())
		h.Sleep(60 * s)
		if a.held()+b.held() != 20 {
			t.Fatalf("%d shards are held, want 20", a.held()+b.held())
		}
		writes := len(h.Store.History()) - before
		if writes < 55 || writes > 61 {
			t.Errorf("%d writes in a minute, want 60", writes)
		}
	})
}

// Emptying a shard's Lease makes no second holder.
func TestEmptiedLeaseWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1)
		a := h.process("a_1", 1)
		h.Sleep(s)
		b := h.process("b_1", 1)
		h.Sleep(3 * s)
		h.Store.Tamper(shardLease(1), func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("") })
		h.Sleep(14 * s)
		if a.held()+b.held() != 0 {
			t.Error("an emptied Lease was taken before a lease duration had passed")
		}
		h.Sleep(2 * s)
		if a.held()+b.held() != 1 {
			t.Errorf("a holds %d and b %d, want 1 in total", a.held(), b.held())
		}
		if members := h.only("cleared"); len(members) != 1 {
			t.Errorf("%q, want the end of one claim", members)
		}
	})
}

// While the watch hangs, lists confirm heartbeats, and the member sees tampering within about a
// retry period.
func TestHungWatch(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1)
		a := h.process("a_1", 1)
		h.Sleep(3 * s)
		a.watch.Block("watch")
		h.Sleep(60 * s)
		if a.held() != 1 {
			t.Fatalf("a lost its shard while its watch hung:\n%s", strings.Join(h.Lines(), "\n"))
		}
		h.Store.Tamper(shardLease(1), func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("x_1") })
		h.Sleep(5 * s)
		if a.held() != 0 {
			t.Error("a still holds the shard 5 s after its Lease named another holder")
		}
	})
}

// A member with a hung loop sends no heartbeat, and names the loop.
func TestHungLoop(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1)
		a := h.process("a_1", 1)
		h.Sleep(3 * s)
		b := h.process("b_1", 1)
		h.Sleep(3 * s)
		a.hang()
		h.Sleep(30 * s)
		if b.held() != 1 || a.held() != 0 {
			t.Errorf("a, which hangs, holds %d and b %d, want 0 and 1", a.held(), b.held())
		}
		if a.err == nil || !strings.Contains(a.err.Error(), "hung: loop") {
			t.Errorf("a ended with %v, want an error that names the loop", a.err)
		}
	})
}

// A member recreates its deleted Lease and keeps its shards.
func TestMemberLeaseDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1, 2)
		a, b := h.process("a_1", 1), h.process("b_1", 2)
		h.Sleep(5 * s)
		h.Store.Remove("f-member-a")
		h.Sleep(30 * s)
		if a.held() != 1 || b.held() != 1 || len(h.only("ended", "struck")) != 0 {
			t.Errorf("a holds %d and b %d, want 1 each:\n%s", a.held(), b.held(), strings.Join(h.Lines(), "\n"))
		}
	})
}

// The next incarnation of a dead member waits for the previous one's lease duration, and then takes
// its shards.
func TestNextIncarnation(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1)
		a := h.process("a_1", 1)
		h.Sleep(3 * s)
		a.client.Block()
		a.watch.Block()
		next := h.process("a_2", 1)
		h.Sleep(12 * s)
		if isClosed(next.membership.Joined()) {
			t.Fatal("a_2 has joined before a_1's Lease was unchanged for its duration")
		}
		h.Sleep(5 * s)
		if next.held() != 1 || a.held() != 0 {
			t.Errorf("a_2 holds %d and a_1 %d, want 1 and 0:\n%s", next.held(), a.held(), strings.Join(h.Lines(), "\n"))
		}
		h.Sleep(5 * s)
		if ended := leaserecord.From(h.Store.Get("f-member-a")).Ended(); len(ended) != 0 {
			t.Errorf("%q are listed as ended although no shard's Lease names them", ended)
		}
	})
}

// A Lease forged in the name of a member that never existed makes no member, and becomes free.
func TestForgedHolderMakesNoMember(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1)
		a := h.process("a_1", 1)
		h.Sleep(3 * s)
		h.Store.Tamper(shardLease(1), func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("ghost_7") })
		h.Sleep(5 * s)
		if h.Store.Get("f-member-ghost") == nil {
			t.Fatal("nobody created the Lease of the forged holder's member, so that it can be judged")
		}
		a.expectRoster("a_1=active/0/ active: a")
		h.Sleep(15 * s)
		if a.held() != 1 {
			t.Errorf("a does not hold its shard again:\n%s", strings.Join(h.Lines(), "\n"))
		}
	})
}

// A holder whose name no member can have makes no Lease of a member, so nobody could list it as
// ended. A Lease that names it becomes free after its duration.
func TestForgedHolderThatCannotBeAMember(t *testing.T) {
	for _, holder := range []string{"parked_by_alice", "Ghost_7", "a/b_7", "_7", strings.Repeat("g", 250) + "_7", "b_", "b_1,z", "b_" + strings.Repeat("7", 300<<10)} {
		inBubble(t, func(t *testing.T, h *harness) {
			h.free(1)
			a := h.process("a_1", 1)
			h.Sleep(3 * s)
			h.Store.Tamper(shardLease(1), func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &holder })
			h.Sleep(5 * s)
			if a.held() != 0 {
				t.Errorf("a still holds the shard 5 s after its Lease named %.20s", holder)
			}
			h.Sleep(15 * s)
			if a.held() != 1 {
				t.Errorf("%.20s: a does not hold its shard again:\n%s", holder, strings.Join(h.Lines(), "\n"))
			}
		})
	}
}

// The incarnations on a list of ended ones are separated by commas. A forged holder with a comma
// must not bring a living one onto it.
func TestForgedHolderThatNamesALivingOne(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(2)
		a, b := h.process("a_1", 1), h.process("b_1", 2)
		h.Sleep(3 * s)
		h.Store.Tamper(shardLease(1), func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("b_1,z") })
		h.Sleep(40 * s)
		if a.held() != 1 || b.held() != 1 || b.err != nil {
			t.Errorf("a holds %d and b %d shards, want 1 each; b has ended with: %v\n%s", a.held(), b.held(), b.err, strings.Join(h.Lines(), "\n"))
		}
	})
}

// effectless loses what strikes write, as an admission webhook may, and counts the writes.
type effectless struct {
	*leasetest.Client
	strikes *int
}

func (e effectless) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if lease.Name == "f-member-b" {
		*e.strikes++
		lease = lease.DeepCopy()
		delete(lease.Annotations, leaserecord.EndedAnnotation)
	}
	return e.Client.Update(ctx, lease, o)
}

// A judge repeats a strike that has no effect, but not without a pause.
func TestStrikeWithoutEffect(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.Store.Put(leasetest.Lease(shardLease(1), "b_1", 7))
		strikes := 0
		h.wrap = func(c *leasetest.Client) Leases { return effectless{c, &strikes} }
		h.process("a_1", 1)
		h.Sleep(2 * time.Minute)
		if strikes < 10 || strikes > 60 {
			t.Errorf("%d strikes in two minutes, want one in a retry period", strikes)
		}
	})
}

// A member joins even if somebody has written the last term on its Lease.
func TestLastTermOnAMembersLease(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1)
		old := leasetest.Lease(leaseName, "a_0", math.MaxInt32)
		old.Name = "f-member-a"
		h.Store.Put(old)
		a := h.process("a_1", 1)
		h.Sleep(20 * s)
		if a.held() != 1 {
			t.Errorf("a has not joined:\n%s", strings.Join(h.Lines(), "\n"))
		}
	})
}

// The only live member lists older incarnations of its own as ended, even if its Lease does not
// mention them because somebody has deleted it.
func TestOlderIncarnationsOfTheOnlyMember(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		for n, holder := range []string{"a_0", "a_forged"} {
			h.Store.Put(leasetest.Lease(shardLease(n+1), holder, 7))
		}
		a := h.process("a_1", 1, 2)
		h.Sleep(14 * s)
		if a.held() != 0 {
			t.Error("a holds a shard of an older incarnation that may still be alive")
		}
		h.Sleep(20 * s)
		if a.held() != 2 {
			t.Errorf("a holds %d of 2 shards:\n%s", a.held(), strings.Join(h.Lines(), "\n"))
		}
	})
}

// A heartbeat is conditional on the version that its step has read. A strike that arrives in
// between must not be overwritten.
func TestHeartbeatIsConditionalOnWhatWasRead(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1)
		a := h.process("a_1", 1)
		h.Sleep(3990 * time.Millisecond) // the next step is the heartbeat at 4
		a.mu.Lock()
		a.meanwhile = func() {
			h.Store.Tamper("f-member-a", func(l *coordinationv1.Lease) {
				l.Spec.HolderIdentity = ptr.To("")
				l.Annotations[leaserecord.EndedAnnotation] = "a_1"
			})
			a.observer.Observe(h.Store.Get("f-member-a"))
		}
		a.mu.Unlock()
		h.Sleep(10 * s)
		ended := false
		for _, write := range h.Store.History() {
			if write.After == nil || write.After.Name != "f-member-a" {
				continue
			}
			after := leaserecord.From(write.After)
			if ended && !after.HasEnded("a_1") {
				t.Errorf("%v after the beginning somebody removed a_1 from the ended incarnations", write.Time.Sub(h.Begin))
			}
			ended = ended || after.HasEnded("a_1")
		}
		if a.held() != 0 || !isClosed(a.membership.Lost()) {
			t.Error("a struck member continues")
		}
	})
}

// A member waits while a live one follows another protocol, and reports that once.
func TestProtocolsWaitForEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1)
		old := leasetest.Lease(leaseName, "b_1", 1)
		old.Name = "f-member-b"
		old.Annotations = map[string]string{leaserecord.StateAnnotation: string(Active)}
		h.Store.Put(old)
		a := h.process("a_1", 1)
		for range 30 {
			h.Store.Tamper("f-member-b", func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(s) })
			h.Sleep(2 * s)
		}
		if isClosed(a.membership.Joined()) {
			t.Error("a member has joined one that follows another protocol")
		}
		if said := h.only("a_1 waiting (protocol)"); len(said) != 1 || !strings.Contains(said[0], "member b_1 follows protocol 1, and this build follows protocol 2") {
			t.Errorf("it reports %q, want one wait for b_1, which follows protocol 1", said)
		}
		h.Sleep(20 * s)
		if a.held() != 1 {
			t.Error("a has not joined after the other has gone")
		}
	})
}

// The loop of a claim that waits for an answer keeps iterating: its member's heartbeat depends on
// it.
func TestBusyClaimKeepsIterating(t *testing.T) {
	timing := election.DefaultTiming()
	now := time.Unix(1000, 0)
	for name, in := range map[string]election.Input{
		"idle":                   {},
		"busy with an answer":    {Busy: true, Touch: true},
		"after a failed request": {Touch: true, State: election.State{NotBefore: now.Add(5 * s)}},
	} {
		in.Self, in.Now, in.Desired, in.Timing = "a_1", now, election.Held, timing
		in.Right, in.Confirmed = true, now
		in.State.Phase, in.State.Term = election.Running, 3
		in.Observation = election.Observation{Record: leaserecord.Record{Name: "f-ns-01", Holder: "a_1", Transitions: 3}, Exists: true, Seen: now}
		if out := election.Step(in); out.Action != election.Wait || out.Wake.Sub(now) > timing.RetryPeriod/2 {
			t.Errorf("%s: %v, looks again after %v, want within %v", name, out.Action, out.Wake.Sub(now), timing.RetryPeriod/2)
		}
	}
}

// TestHolderRepairsItsLease has somebody write a nonsensical duration on a shard's Lease. The
// holder must restore it, although it does not renew that Lease.
func TestHolderRepairsItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1)
		p := h.process("a_1", 1)
		h.Sleep(10 * s)
		h.Store.Tamper(shardLease(1), func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To[int32](math.MaxInt32) })
		h.Sleep(s)
		if got := *h.Store.Get(shardLease(1)).Spec.LeaseDurationSeconds; got != 15 || p.held() != 1 {
			t.Errorf("the Lease says %d s, want 15; %d shards are held, want 1", got, p.held())
		}
	})
}

// TestAbsentLeaseGivesNoRight deletes a shard's Lease whose holder cannot recreate it, but keeps
// sending heartbeats.
func TestAbsentLeaseGivesNoRight(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1)
		a := h.process("a_1", 1)
		h.Sleep(5 * s)
		b := h.process("b_1", 1)
		h.Sleep(5 * s)
		if a.held() != 1 {
			t.Fatal("a does not hold the shard")
		}
		a.client.Block("create")
		h.Store.Remove(shardLease(1))
		taken := false
		for range 80 {
			h.Sleep(s / 4)
			if a.held() > 0 {
				t.Fatal("a may write for a shard whose Lease is absent, or another's")
			}
			taken = taken || b.held() == 1
		}
		if !taken {
			t.Error("b has not taken it after 20 s")
		}
	})
}

// TestRevokedWhileAHeartbeatIsUnconfirmed revokes a member between a heartbeat and its
// confirmation, with work that takes long to return. No loop may spin meanwhile.
func TestRevokedWhileAHeartbeatIsUnconfirmed(t *testing.T) {
	inBubble(t, func(t *testing.T, h *harness) {
		h.free(1)
		p := h.process("a_1", 1)
		p.linger = 4 * s
		h.Sleep(10 * s)
		p.watch.LagWatch(s)
		for !p.unconfirmed() {
			h.Sleep(s / 20)
		}
		p.membership.Revoke()
		h.Sleep(2 * s)
		if p.held() != 0 {
			t.Error("a revoked member holds a shard")
		}
		h.Sleep(6 * s)
		if p.err == nil {
			t.Error("it has not ended after its work has returned")
		}
	})
}

// unconfirmed reports whether the process's last heartbeat is stored but not yet delivered by its
// watch.
func (p *process) unconfirmed() bool {
	return p.observer.Through() < heartbeat.ParseVersion(p.Store.Get(leaserecord.MemberLease("f", leaserecord.MemberOf(p.name))).ResourceVersion)
}
