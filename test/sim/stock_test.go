package sim

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

// stock is a replica of the stock controller manager: client-go's own elector, and controllers that
// run while it leads and for a while after it has released its Lease.
type stock struct {
	sim    *simulation
	name   string
	client *leasetest.Client
	cancel context.CancelFunc
	ended  chan struct{} // nil before the first start
	linger time.Duration
	// works is when its controllers began to run, zero while they do not. stopping is set when it
	// was asked to stop, dead when it was killed. Guarded by sim.mu.
	works          time.Time
	stopping, dead bool
}

// install makes a seed with leader locks begin under a stock leader, or with stock replicas that
// come later.
func (sim *simulation) install() {
	if !sim.leaderLocks {
		return
	}
	for i := range 2 {
		c := &stock{sim: sim, name: fmt.Sprintf("stock-%d", i)}
		sim.stocks = append(sim.stocks, c)
		if sim.random.IntN(2) == 0 {
			c.start()
		}
	}
}

// start starts a process unless one runs.
func (c *stock) start() {
	if c.ended != nil && !isClosed(c.ended) || c.sim.healed.Load() {
		return
	}
	sim := c.sim
	c.client, c.ended, c.linger = sim.store.Client(c.name), make(chan struct{}), upTo(sim.random, longestLinger)
	c.client.Script(func(string) leasetest.Fault {
		return leasetest.Fault{Out: 10 * time.Millisecond, Back: 10 * time.Millisecond}
	})
	sim.mu.Lock()
	c.stopping, c.dead = false, false
	sim.mu.Unlock()
	sim.notef("%s starts", c.name)
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(sim.t.Context())
	ended, identity := c.ended, leaserecord.NewIncarnation(c.name)
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			c.elect(ctx, identity)
		}
	}()
}

// elect runs a process until it has lost the lead.
func (c *stock) elect(ctx context.Context, identity string) {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: leasetest.Namespace, Name: stockLease},
			Client:     leasetest.ElectorLeases{Client: c.client},
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: c.lead, OnStoppedLeading: c.yield},
	})
	if err != nil {
		c.sim.failf(operator, "no stock replica: %v", err)
		return
	}
	elector.Run(ctx)
}

// lead starts the controllers of a leader.
func (c *stock) lead(ctx context.Context) {
	sim := c.sim
	sim.mu.Lock()
	defer sim.mu.Unlock()
	if ctx.Err() != nil || c.dead {
		return
	}
	c.works = time.Now()
	sim.countLocked(stockLeads)
	sim.noteLockedf("%s leads", c.name)
	sim.judgeStockLocked(c)
}

// yield ends them. If the lead was lost, it does so at once, because the process exits. If the
// process was asked to stop, it does so after a while; the Lease is released before.
func (c *stock) yield() {
	sim := c.sim
	sim.mu.Lock()
	defer sim.mu.Unlock()
	began := c.works
	if began.IsZero() {
		return
	}
	if !c.stopping {
		c.works = time.Time{}
		sim.noteLockedf("%s has lost the lead", c.name)
		return
	}
	sim.store.Tamper(stockLease, func(l *coordinationv1.Lease) {
		if leaserecord.MemberOf(ptr.Deref(l.Spec.HolderIdentity, "")) == c.name {
			l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = ptr.To(""), ptr.To[int32](1)
		}
	})
	sim.noteLockedf("%s has released the lock, and stops within %v", c.name, c.linger)
	time.AfterFunc(c.linger, func() {
		sim.mu.Lock()
		defer sim.mu.Unlock()
		if c.works.Equal(began) {
			c.works = time.Time{}
			sim.noteLockedf("%s has stopped", c.name)
		}
	})
}

// stop sends SIGTERM: the process releases the Lease as it begins to stop.
func (c *stock) stop() {
	if c.ended == nil {
		return
	}
	c.sim.mu.Lock()
	c.stopping = true
	c.sim.mu.Unlock()
	c.client.Heal()
	c.cancel()
}

// kill is SIGKILL: nothing is released.
func (c *stock) kill() {
	if c.ended == nil {
		return
	}
	c.sim.mu.Lock()
	c.dead, c.works = true, time.Time{}
	c.sim.mu.Unlock()
	c.client.Block()
	c.cancel()
}

// wait returns once the process has ended.
func (c *stock) wait() {
	if c.ended != nil {
		<-c.ended
	}
}

// fault disturbs a stock replica, or all members at once, so that a replica may become the leader.
func (c *stock) fault() {
	sim := c.sim
	d := upTo(sim.random, 25*time.Second)
	switch sim.random.IntN(8) {
	case 0:
		sim.notef("%s is killed", c.name)
		c.kill()
	case 1, 2:
		sim.notef("%s is stopped", c.name)
		c.stop()
	case 3:
		if client := c.client; client != nil {
			sim.notef("%s is cut off for %v", c.name, d)
			client.Block()
			time.AfterFunc(d, func() {
				sim.mu.Lock()
				dead := c.dead
				sim.mu.Unlock()
				if !dead {
					client.Unblock()
				}
			})
		}
	case 4:
		sim.notef("all members are cut off for %v", d)
		for _, p := range sim.live() {
			p.client.Block()
			time.AfterFunc(d, func() { p.client.Unblock() })
		}
	default:
		c.start()
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
