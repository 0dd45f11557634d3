package election

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

// process is a member with a heartbeat and claims on some shards.
type process struct {
	*node
	membership *Membership
	claimants  map[string]*Claimant
	err        error

	mu     sync.Mutex
	turned time.Time // when its loops came round last; zero for always
	// meanwhile is called once, after a step has read the member's Lease and before it writes.
	meanwhile func()
}

func shardLease(i int) string { return fmt.Sprintf("f-ns-%02d", i) }

// process starts one whose claims want these shards.
func (w *world) process(incarnation string, shards ...int) *process {
	w.t.Helper()
	clock := &leasetest.JumpClock{}
	p := w.processOn(clock, incarnation, shards...)
	p.clock = clock
	return p
}

// processOn is process with another clock.
func (w *world) processOn(clock Clock, incarnation string, shards ...int) *process {
	w.t.Helper()
	n := &node{
		world: w, name: incarnation, client: w.store.Client(incarnation), watch: w.store.Client(incarnation),
		stopped: make(chan struct{}),
	}
	delayed := func(string) leasetest.Fault { return leasetest.Fault{Out: time.Millisecond, Back: time.Millisecond} }
	n.client.Script(delayed)
	p := &process{node: n, claimants: map[string]*Claimant{}}
	n.observer = w.observer(n.watch, clock)
	var err error
	jitter := func(d time.Duration) time.Duration { return d }
	p.membership, err = NewMembership(MembershipConfig{
		Fleet: "f", Incarnation: incarnation, Client: n.client, Observer: n.observer, Clock: clock, Timing: DefaultTiming(),
		OnEvent: n.event, Jitter: jitter, Turned: p.lastTurned,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, i := range shards {
		p.claimants[shardLease(i)], err = NewClaimant(ClaimantConfig{
			Name: shardLease(i), Identity: incarnation, Client: n.client, Observer: n.observer, Clock: clock, Timing: DefaultTiming(),
			Heartbeat: p.membership, Revoked: p.membership.Lost(), Work: p.work,
			OnEvent: p.shardEvent, OnStuck: n.stuck, Jitter: jitter,
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	n.start(p.run)
	return p
}

// run is the order in which a member starts and stops.
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
		c.SetDesired(Held)
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

// work takes as long to return as linger says.
func (p *process) work(ctx context.Context, _ *Claim) {
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

// shardEvent logs what becomes of claims, with the shard's number.
func (p *process) shardEvent(e Event) {
	switch e.Type {
	case EventAcquired, EventEnded, EventReleased:
		p.Logf("%s %s %s %d %s", p.name, e.Type, strings.TrimPrefix(e.Name, "f-"), e.Term, e.Reason)
	}
}

// held counts the shards that the process may write for now.
func (p *process) held() int {
	held := 0
	for _, c := range p.claimants {
		if claim := c.Claim(); claim != nil && claim.Valid(p.clock.Now()) {
			held++
		}
	}
	return held
}

// free puts released Leases of shards into the store.
func (w *world) free(shards ...int) {
	for _, i := range shards {
		l := lease("", 1)
		l.Name = shardLease(i)
		w.store.Put(l)
	}
}

// only returns the lines of the transcript that have one of these words, without their times.
func (w *world) only(words ...string) []string {
	var found []string
	for _, line := range w.Lines() {
		for _, word := range words {
			if strings.Contains(line, word) {
				found = append(found, strings.TrimSpace(line))
				break
			}
		}
	}
	return found
}

// A dead member's shards come free with one strike, a lease duration after its last heartbeat.
func TestStrikeFreesAllShards(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.free(1, 2, 3)
		a := w.process("a_1", 1, 2, 3)
		w.sleep(s)
		b := w.process("b_1", 1, 2, 3)
		w.sleep(3 * s) // a has renewed at 2, with b as a witness
		if a.held() != 3 || b.held() != 0 {
			t.Fatalf("a holds %d shards and b %d, want 3 and 0", a.held(), b.held())
		}
		a.client.Block()
		a.watch.Block()
		w.sleep(6500 * time.Millisecond)
		if a.held() != 3 {
			t.Errorf("a holds %d shards before its renew deadline, want 3", a.held())
		}
		w.sleep(4 * s)
		if a.held() != 0 || b.held() != 0 {
			t.Errorf("a holds %d shards and b %d after a's renew deadline, want none", a.held(), b.held())
		}
		w.sleep(5 * s)
		if b.held() != 3 {
			t.Errorf("b holds %d shards a lease duration after a's last heartbeat, want 3:\n%s", b.held(), strings.Join(w.Lines(), "\n"))
		}
		if strikes := w.only("struck"); len(strikes) != 1 {
			t.Errorf("strikes: %q, want one", strikes)
		}
		if dead := RecordFrom(w.store.Get("f-member-a")); !dead.HasEnded("a_1") || dead.Holder != "" {
			t.Errorf("a's Lease names %q and lists %q as ended", dead.Holder, dead.Ended())
		}
	})
}

// A member that leaves releases its shards one by one, and nobody waits.
func TestLeavingMemberIsNotStruck(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.free(1, 2)
		a := w.process("a_1", 1, 2)
		w.sleep(s)
		b := w.process("b_1", 1, 2)
		w.sleep(3 * s)
		a.stop()
		w.sleep(100 * time.Millisecond)
		if b.held() != 2 || a.err != nil {
			t.Errorf("b holds %d shards, want 2; a ended with %v", b.held(), a.err)
		}
		if strikes := w.only("struck"); len(strikes) != 0 {
			t.Errorf("strikes: %q, want none", strikes)
		}
		if left := RecordFrom(w.store.Get("f-member-a")); !left.HasEnded("a_1") || left.Holder != "" {
			t.Errorf("a's Lease names %q and lists %q as ended, want itself", left.Holder, left.Ended())
		}
	})
}

// An idle fleet writes one Lease a member and retry period, however many shards there are.
func TestIdleFleetWritesHeartbeatsAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var shards []int
		for i := range 20 {
			shards = append(shards, i)
		}
		w.free(shards...)
		a, b := w.process("a_1", shards[:10]...), w.process("b_1", shards[10:]...)
		w.sleep(10 * s)
		before := len(w.store.History())
		w.sleep(60 * s)
		if a.held()+b.held() != 20 {
			t.Fatalf("%d shards are held, want 20", a.held()+b.held())
		}
		writes := len(w.store.History()) - before
		if writes < 55 || writes > 61 {
			t.Errorf("%d writes in a minute, want 60", writes)
		}
	})
}

// What somebody does to a shard's Lease makes no second holder.
func TestEmptiedLeaseWaits(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.free(1)
		a := w.process("a_1", 1)
		w.sleep(s)
		b := w.process("b_1", 1)
		w.sleep(3 * s)
		w.store.Tamper(shardLease(1), func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("") })
		w.sleep(14 * s)
		if a.held()+b.held() != 0 {
			t.Error("an emptied Lease was taken before a lease duration had passed")
		}
		w.sleep(2 * s)
		if a.held()+b.held() != 1 {
			t.Errorf("a holds %d and b %d, want one of them to", a.held(), b.held())
		}
		if members := w.only("cleared"); len(members) != 1 {
			t.Errorf("%q, want the end of one claim", members)
		}
	})
}

// With a watch that hangs, heartbeats are confirmed by lists, and tampering is seen within a retry
// period.
func TestHungWatch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.free(1)
		a := w.process("a_1", 1)
		w.sleep(3 * s)
		a.watch.Block("watch")
		w.sleep(60 * s)
		if a.held() != 1 {
			t.Fatalf("a lost its shard while its watch hung:\n%s", strings.Join(w.Lines(), "\n"))
		}
		w.store.Tamper(shardLease(1), func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("x_1") })
		w.sleep(5 * s)
		if a.held() != 0 {
			t.Error("a writes on 5 s after another holder was written on its Lease")
		}
	})
}

// A member whose loop does not come round sends no heartbeat, and says which loop it was.
func TestHungLoop(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.free(1)
		a := w.process("a_1", 1)
		w.sleep(3 * s)
		b := w.process("b_1", 1)
		w.sleep(3 * s)
		a.hang()
		w.sleep(30 * s)
		if b.held() != 1 || a.held() != 0 {
			t.Errorf("a, which hangs, holds %d and b %d, want 0 and 1", a.held(), b.held())
		}
		if a.err == nil || !strings.Contains(a.err.Error(), "hung: loop") {
			t.Errorf("a ended with %v, want one that names the loop", a.err)
		}
	})
}

// A member's Lease that is deleted is written again, and nothing is lost by it.
func TestMemberLeaseDeleted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.free(1, 2)
		a, b := w.process("a_1", 1), w.process("b_1", 2)
		w.sleep(5 * s)
		w.store.Remove("f-member-a")
		w.sleep(30 * s)
		if a.held() != 1 || b.held() != 1 || len(w.only("ended", "struck")) != 0 {
			t.Errorf("a holds %d and b %d, want 1 each:\n%s", a.held(), b.held(), strings.Join(w.Lines(), "\n"))
		}
	})
}

// The next incarnation of a dead member waits for its predecessor's lease duration, and then takes
// up its shards.
func TestNextIncarnation(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.free(1)
		a := w.process("a_1", 1)
		w.sleep(3 * s)
		a.client.Block()
		a.watch.Block()
		next := w.process("a_2", 1)
		w.sleep(12 * s)
		if closed(next.membership.Joined()) {
			t.Fatal("a_2 has joined before a_1's Lease had stood still for its duration")
		}
		w.sleep(5 * s)
		if next.held() != 1 || a.held() != 0 {
			t.Errorf("a_2 holds %d and a_1 %d, want 1 and 0:\n%s", next.held(), a.held(), strings.Join(w.Lines(), "\n"))
		}
		w.sleep(5 * s)
		if ended := RecordFrom(w.store.Get("f-member-a")).Ended(); len(ended) != 0 {
			t.Errorf("%q are listed as ended although no shard's Lease names them", ended)
		}
	})
}

// A Lease that somebody forges in the name of a member that there never was makes no member, and is
// free in the end.
func TestForgedHolderMakesNoMember(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.free(1)
		a := w.process("a_1", 1)
		w.sleep(3 * s)
		w.store.Tamper(shardLease(1), func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("ghost_7") })
		w.sleep(5 * s)
		if w.store.Get("f-member-ghost") == nil {
			t.Fatal("the Lease of the forged holder's member was not written, so that it could be judged")
		}
		a.expectRoster("a_1=active/0/ active: a")
		w.sleep(15 * s)
		if a.held() != 1 {
			t.Errorf("a does not hold its shard again:\n%s", strings.Join(w.Lines(), "\n"))
		}
	})
}

// What a step decides is written on the version that it has read. Here a strike arrives between the
// two: the heartbeat must not overwrite it.
func TestHeartbeatIsConditionalOnWhatWasRead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.free(1)
		a := w.process("a_1", 1)
		w.sleep(3990 * time.Millisecond) // the next step is the heartbeat at 4
		a.mu.Lock()
		a.meanwhile = func() {
			w.store.Tamper("f-member-a", func(l *coordinationv1.Lease) {
				l.Spec.HolderIdentity = ptr.To("")
				l.Annotations[EndedAnnotation] = "a_1"
			})
			a.observer.Observe(w.store.Get("f-member-a"))
		}
		a.mu.Unlock()
		w.sleep(10 * s)
		ended := false
		for _, write := range w.store.History() {
			if write.After == nil || write.After.Name != "f-member-a" {
				continue
			}
			after := RecordFrom(write.After)
			if ended && !after.HasEnded("a_1") {
				t.Errorf("%v after the beginning somebody erased that a_1 has ended", write.Time.Sub(w.begin))
			}
			ended = ended || after.HasEnded("a_1")
		}
		if a.held() != 0 || !closed(a.membership.Lost()) {
			t.Error("a struck member goes on")
		}
	})
}

// A member waits while a live one follows another protocol, and says so once.
func TestProtocolsWaitForEachOther(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.free(1)
		old := lease("b_1", 1)
		old.Name = "f-member-b"
		old.Annotations = map[string]string{StateAnnotation: string(MemberActive)}
		w.store.Put(old)
		a := w.process("a_1", 1)
		for range 30 {
			w.store.Tamper("f-member-b", func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(s) })
			w.sleep(2 * s)
		}
		if closed(a.membership.Joined()) {
			t.Error("a member has joined one that follows another protocol")
		}
		if said := w.only("a_1 waiting (protocol)"); len(said) != 1 {
			t.Errorf("it says %q, want once that it waits for the protocol", said)
		}
		w.sleep(20 * s)
		if a.held() != 1 {
			t.Error("it has not joined after the other has gone")
		}
	})
}

// A claim that waits for an answer comes round all the same: its member's heartbeat depends on it.
func TestBusyClaimComesRound(t *testing.T) {
	timing := DefaultTiming()
	now := time.Unix(1000, 0)
	for name, in := range map[string]Input{
		"idle":                   {},
		"busy with an answer":    {Busy: true, Touch: true},
		"after a failed request": {Touch: true, State: State{NotBefore: now.Add(5 * s)}},
	} {
		in.Self, in.Now, in.Desired, in.Timing = "a_1", now, Held, timing
		in.Right, in.Confirmed = true, now
		in.State.Phase, in.State.Term = Running, 3
		in.Observation = Observation{Record: Record{Name: "f-ns-01", Holder: "a_1", Transitions: 3}, Exists: true, Seen: now}
		if out := Step(in); out.Action != Wait || out.Wake.Sub(now) > timing.RetryPeriod/2 {
			t.Errorf("%s: %v, looks again after %v, want within %v", name, out.Action, out.Wake.Sub(now), timing.RetryPeriod/2)
		}
	}
}

// TestHolderMendsItsLease has somebody write a duration that makes no sense on a shard's Lease,
// whose holder does not renew it.
func TestHolderMendsItsLease(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.free(1)
		p := w.process("a_1", 1)
		w.sleep(10 * s)
		w.store.Tamper(shardLease(1), func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To[int32](math.MaxInt32) })
		w.sleep(s)
		if got := *w.store.Get(shardLease(1)).Spec.LeaseDurationSeconds; got != 15 || p.held() != 1 {
			t.Errorf("the Lease says %d s, want 15; %d shards are held, want 1", got, p.held())
		}
	})
}

// TestAbsentLeaseGivesNoRight has a shard's Lease deleted whose holder cannot write it again, while
// its heartbeats go on.
func TestAbsentLeaseGivesNoRight(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.free(1)
		a := w.process("a_1", 1)
		w.sleep(5 * s)
		b := w.process("b_1", 1)
		w.sleep(5 * s)
		if a.held() != 1 {
			t.Fatal("a does not hold the shard")
		}
		a.client.Block("create")
		w.store.Remove(shardLease(1))
		taken := false
		for range 80 {
			w.sleep(s / 4)
			if a.held() > 0 {
				t.Fatal("a may write for a shard whose Lease is not there, or another's")
			}
			taken = taken || b.held() == 1
		}
		if !taken {
			t.Error("b has not taken it after 20 s")
		}
	})
}

// TestRevokedWhileAHeartbeatIsUnconfirmed has a member lose its right between a heartbeat and its
// confirmation, and work that takes long to return. Time goes by meanwhile: nothing spins.
func TestRevokedWhileAHeartbeatIsUnconfirmed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.free(1)
		p := w.process("a_1", 1)
		p.linger = 4 * s
		w.sleep(10 * s)
		p.watch.LagWatch(s)
		for !p.unconfirmed() {
			w.sleep(s / 20)
		}
		p.membership.Revoke()
		w.sleep(2 * s)
		if p.held() != 0 {
			t.Error("a member that was revoked holds a shard")
		}
		w.sleep(6 * s)
		if p.err == nil {
			t.Error("it has not ended after its work has returned")
		}
	})
}

// unconfirmed reports whether the process's last heartbeat is stored and its watch has not brought
// it.
func (p *process) unconfirmed() bool {
	return p.observer.Through() < versionOf(p.store.Get(MemberLease("f", MemberOf(p.name))).ResourceVersion)
}
