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

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leasetest"
)

// stock is a replica of the stock controller manager: client-go's own elector, and controllers that
// run while it leads and for a while after it has released its Lease.
type stock struct {
	world  *world
	name   string
	client *leasetest.Client
	cancel context.CancelFunc
	ended  chan struct{} // nil before the first start
	linger time.Duration
	// works is when its controllers began to run, zero while they do not. stopping is set when it
	// was asked to stop, dead when it was killed. Guarded by world.mu.
	works          time.Time
	stopping, dead bool
}

// install makes a seed with leader locks begin under a stock leader, or with stock replicas that
// come later.
func (w *world) install() {
	if !w.leaderLocks {
		return
	}
	for i := range 2 {
		c := &stock{world: w, name: fmt.Sprintf("stock-%d", i)}
		w.stocks = append(w.stocks, c)
		if w.random.IntN(2) == 0 {
			c.start()
		}
	}
}

// start starts a process unless one runs.
func (c *stock) start() {
	if c.ended != nil && !isClosed(c.ended) || c.world.healed.Load() {
		return
	}
	w := c.world
	c.client, c.ended, c.linger = w.store.Client(c.name), make(chan struct{}), upTo(w.random, longestLinger)
	c.client.Script(func(string) leasetest.Fault {
		return leasetest.Fault{Out: 10 * time.Millisecond, Back: 10 * time.Millisecond}
	})
	w.mu.Lock()
	c.stopping, c.dead = false, false
	w.mu.Unlock()
	w.notef("%s starts", c.name)
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(w.t.Context())
	ended, identity := c.ended, election.NewIncarnation(c.name)
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
		c.world.failf(operator, "no stock replica: %v", err)
		return
	}
	elector.Run(ctx)
}

// lead starts the controllers of a leader.
func (c *stock) lead(ctx context.Context) {
	w := c.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil || c.dead {
		return
	}
	c.works = time.Now()
	w.countLocked(stockLeads)
	w.noteLockedf("%s leads", c.name)
	w.judgeStockLocked(c)
}

// yield ends them. If the lead was lost, it does so at once, because the process exits. If the
// process was asked to stop, it does so after a while; the Lease is released before.
func (c *stock) yield() {
	w := c.world
	w.mu.Lock()
	defer w.mu.Unlock()
	began := c.works
	if began.IsZero() {
		return
	}
	if !c.stopping {
		c.works = time.Time{}
		w.noteLockedf("%s has lost the lead", c.name)
		return
	}
	w.store.Tamper(stockLease, func(l *coordinationv1.Lease) {
		if election.MemberOf(ptr.Deref(l.Spec.HolderIdentity, "")) == c.name {
			l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = ptr.To(""), ptr.To[int32](1)
		}
	})
	w.noteLockedf("%s has released the lock, and stops within %v", c.name, c.linger)
	time.AfterFunc(c.linger, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if c.works.Equal(began) {
			c.works = time.Time{}
			w.noteLockedf("%s has stopped", c.name)
		}
	})
}

// stop sends SIGTERM: the process releases the Lease as it begins to stop.
func (c *stock) stop() {
	if c.ended == nil {
		return
	}
	c.world.mu.Lock()
	c.stopping = true
	c.world.mu.Unlock()
	c.client.Heal()
	c.cancel()
}

// kill is SIGKILL: nothing is released.
func (c *stock) kill() {
	if c.ended == nil {
		return
	}
	c.world.mu.Lock()
	c.dead, c.works = true, time.Time{}
	c.world.mu.Unlock()
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
	w := c.world
	d := upTo(w.random, 25*time.Second)
	switch w.random.IntN(8) {
	case 0:
		w.notef("%s is killed", c.name)
		c.kill()
	case 1, 2:
		w.notef("%s is stopped", c.name)
		c.stop()
	case 3:
		if client := c.client; client != nil {
			w.notef("%s is cut off for %v", c.name, d)
			client.Block()
			time.AfterFunc(d, func() {
				w.mu.Lock()
				dead := c.dead
				w.mu.Unlock()
				if !dead {
					client.Unblock()
				}
			})
		}
	case 4:
		w.notef("all members are cut off for %v", d)
		for _, p := range w.live() {
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
