package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the property tests; 0 for a new one each time")

// newRandom returns a source of random numbers and logs its seed.
func newRandom(t testing.TB) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("Seed %d: repeat with -run '^%s$' -seed %d", seed, t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// TestShardsPartitionTheCluster compares the shards' caches with unfiltered ones and with the API
// server, while objects change and watches break. It runs on an API server that filters and on one
// that does not, with streaming lists and without.
func TestShardsPartitionTheCluster(t *testing.T) {
	stock, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stock.Stop(); err != nil {
			t.Error(err)
		}
	})
	// After a restart it has forgotten earlier events.
	if err := errors.Join(stock.StopAPIServer(), stock.StartAPIServer(t.Context())); err != nil {
		t.Fatal(err)
	}
	planes := map[informer.Mode]*controlplane.ControlPlane{informer.ServerSide: plane, informer.ClientSide: stock}
	for _, p := range planes {
		defineCustomResources(t, p.AdminConfig())
	}
	for _, streaming := range []bool{true, false} {
		t.Run(fmt.Sprintf("%s=%t", clientfeatures.WatchListClient, streaming), func(t *testing.T) {
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, streaming)
			for mode, p := range planes {
				t.Run(string(mode), func(t *testing.T) {
					t.Parallel()
					partition(t, p.AdminConfig(), mode)
				})
			}
		})
	}
}

// partition makes changes of all sorts and compares after each.
func partition(t *testing.T, config *rest.Config, mode informer.Mode) {
	random := newRandom(t)
	m := newMutator(t, random, config)
	m.populate(20)
	c := &comparison{t: t, random: random, mutator: m, unfiltered: startUnfiltered(t, config)}
	c.startProcesses(config)
	c.compare("at first")
	if mode == informer.ServerSide {
		c.checkShared(mode)
	}
	c.changeAndCut()
	if mode == informer.ClientSide {
		c.checkShared(mode) // By then shards that started at different times share their informers.
	}
	c.askForMore()
	c.compare("after changes and cut watches")
	c.changeUnseen()
	c.compare("after new lists")
	for _, p := range c.processes {
		// changeUnseen waited for these; the other watches had sent nothing yet, so their informers
		// listed again.
		if p.wire.refusals() < len(subjects)/2 {
			t.Errorf("%s: %d watches were told to list again, want one of most resources at least", p.name, p.wire.refusals())
		}
	}
	c.stopSome()
	c.compare("after the end of some shards")
	for _, p := range c.processes {
		p.checkMode(t, mode)
	}
	c.stopAll()
	t.Logf("%d writes", m.writes)
}

// comparison is several processes, each with its own plan, that watch one mutator's objects.
type comparison struct {
	t          *testing.T
	random     *rand.Rand
	mutator    *mutator
	unfiltered unfiltered
	processes  []*process
}

// changeAndCut cuts watches while objects change.
func (c *comparison) changeAndCut() {
	for range 150 {
		c.mutator.change()
		if c.random.IntN(10) == 0 {
			c.processes[c.random.IntN(len(c.processes))].wire.cut(c.random, 0.2)
		}
	}
}

// askForMore adds handlers to running informers, and an informer to running factories.
func (c *comparison) askForMore() {
	for _, p := range c.processes {
		for _, s := range p.shards {
			s.ask(c.t, lateSubject)
			s.factory.StartWithContext(context.WithoutCancel(c.t.Context()))
			for _, b := range s.read {
				b.addReplica(c.t)
			}
		}
	}
}

// changeUnseen changes objects while there are no watches, and makes each process learn in another
// way that it must list again.
func (c *comparison) changeUnseen() {
	// If a watch ends before its informer has received anything, a list follows, and not a watch
	// that could be too late. So wait until all but two have sent something, and until informers
	// have received it, because hold drops what is in transit; half of them are enough below.
	eventually(c.t, func() error {
		c.mutator.change()
		for _, p := range c.processes {
			if n := p.wire.talking(); n < len(subjects)-2 {
				return fmt.Errorf("%s: %d watches have said something", p.name, n)
			}
		}
		return nil
	})
	c.compare("before watches are held")
	for _, p := range c.processes {
		p.wire.hold()
	}
	for range 150 {
		c.mutator.change()
	}
	eventually(c.t, func() error {
		for _, p := range c.processes {
			if n := p.wire.waiting(); n < len(subjects)/2 {
				return fmt.Errorf("%s: %d watches wait for an answer", p.name, n)
			}
		}
		return nil
	})
	first := c.random.IntN(int(expiries))
	for i, p := range c.processes {
		p.wire.release(expiry(first+i) % expiries)
	}
	for range 50 {
		c.mutator.change()
	}
}

// stopSome stops one shard of each process that has several.
func (c *comparison) stopSome() {
	for _, p := range c.processes {
		if len(p.shards) > 1 {
			p.stop(c.random.IntN(len(p.shards)))
		}
	}
	for range 50 {
		c.mutator.change()
	}
}

func (c *comparison) checkShared(filter informer.Mode) {
	for _, p := range c.processes {
		p.checkShared(c.t, filter)
	}
}

func (c *comparison) stopAll() {
	for _, p := range c.processes {
		for len(p.shards) > 0 {
			p.stop(0)
		}
		if left := p.pool.Resources(); len(left) != 0 {
			c.t.Errorf("%s: informers left after all shards' end: %v", p.name, left)
		}
	}
}

// lateSubject is the one that no shard requests at first.
var lateSubject = subjects[1]

// startProcesses starts the processes. The bounds of the first one's plan are all hashes of
// namespaces.
func (c *comparison) startProcesses(config *rest.Config) {
	for i := range 4 {
		n := 9
		if i > 0 {
			n = 1 + c.random.IntN(9)
		}
		ranges := randomRanges(c.random, n, c.mutator.names, i == 0)
		c.t.Logf("Process %d: %v", i, ranges)
		config := rest.CopyConfig(config)
		if i%2 == 0 {
			config.ContentType = "application/vnd.kubernetes.protobuf"
			config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
		}
		atFirst := slices.DeleteFunc(slices.Clone(subjects), func(s subject) bool { return s.gvr == lateSubject.gvr })
		c.processes = append(c.processes, startProcess(c.t, fmt.Sprintf("process %d", i), config, ranges, atFirst))
	}
}

// compare waits until all caches equal the API server's state.
func (c *comparison) compare(what string) {
	t := c.t
	t.Helper()
	began := time.Now()
	for _, s := range subjects {
		eventually(t, func() error {
			want, err := live(t.Context(), c.mutator.metadata, s.gvr)
			if err != nil {
				return err
			}
			if err := want.diff(contentOf(c.unfiltered[s.gvr].GetStore().List())); err != nil {
				return fmt.Errorf("%s: client-go's unfiltered %s: %w", what, s.kind, err)
			}
			for _, p := range c.processes {
				fault, difference := p.check(s, want)
				if fault != nil {
					t.Fatalf("%s: %v", what, fault)
				}
				if difference != nil {
					return fmt.Errorf("%s: %w", what, difference)
				}
			}
			return nil
		})
	}
	t.Logf("%s, the caches are right in %v", strings.ToUpper(what[:1])+what[1:], time.Since(began).Round(time.Millisecond))
}
