package main

import (
	"context"
	"fmt"
	"net"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	fleetmetrics "github.com/flotilla-kube/flotilla/pkg/metrics"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	fleetName = "flotilla"
	namespace = "kube-system"

	// The product's defaults.
	rebalanceDelay = 10 * time.Second
	fenceDelay     = 200 * time.Millisecond
	dialTimeout    = 30 * time.Second
)

// member is one member of the fleet, in this process, through all its incarnations.
type member struct {
	crew *crew
	name string
	plan shard.Plan
	kube *rest.Config
	// timing is the Leases' timing.
	timing election.Timing
	// scrape is how often its metrics are read, as Prometheus would.
	scrape time.Duration

	mu      sync.Mutex
	present *fleet.Member
}

// timing returns the product's timing, slower by a factor.
func timing(slower int) election.Timing {
	t := election.DefaultTiming()
	by := time.Duration(slower)
	return election.Timing{LeaseDuration: by * t.LeaseDuration, RenewDeadline: by * t.RenewDeadline, RetryPeriod: by * t.RetryPeriod}
}

// run starts the member, and restarts it whenever it has ended by itself, as a kubelet would, until
// ctx ends.
func (m *member) run(ctx context.Context) error {
	for {
		err := m.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		m.crew.send(message{Kind: lost, Member: m.name, Text: fmt.Sprint(err)})
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

func (m *member) once(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(m.config())
	if err != nil {
		return err
	}
	counted, err := fleetmetrics.New(fleetmetrics.Options{Fleet: fleetName})
	if err != nil {
		return err
	}
	config := fleet.Config{
		Fleet: fleetName, Member: m.name, Plan: m.plan,
		Leases:         leases{client.CoordinationV1().Leases(namespace), m},
		Timing:         m.timing,
		RebalanceDelay: rebalanceDelay,
		FenceDelay:     fenceDelay,
		Build:          m.build,
		Memory:         func() leaseapi.Memory { return leaseapi.Memory{Live: int64(liveHeap())} },
		Enforced:       func() bool { return false },
		Observe:        counted.Count,
		Exit:           m.crew.exit,
	}
	present, err := fleet.New(config)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := counted.Register(registry, fleetmetrics.Source{Member: present}); err != nil {
		return err
	}
	m.set(present)
	defer m.set(nil)
	scraping, stop := context.WithCancel(ctx)
	var scraper sync.WaitGroup
	defer scraper.Wait()
	defer stop()
	if m.scrape > 0 {
		scraper.Go(func() { m.scrapeUntilDone(scraping, registry) })
	}
	return present.Run(ctx)
}

// config returns the configuration of the product's client for Leases. Each member has its own
// client.
func (m *member) config() *rest.Config {
	c := rest.CopyConfig(m.kube)
	c.QPS = -1
	c.ContentType, c.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}
	c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return countedConn{conn, m.crew}, nil
	}
	c.UserAgent = "scale"
	return rest.AddUserAgent(c, "fleet-member/"+m.name)
}

func (m *member) scrapeUntilDone(ctx context.Context, registry prometheus.Gatherer) {
	ticker := time.NewTicker(m.scrape)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_, _ = registry.Gather()
		}
	}
}

func (m *member) set(present *fleet.Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.present = present
}

func (m *member) get() *fleet.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.present
}

func (m *member) build(_ context.Context, given fleet.Work) (fleet.Instance, error) {
	return &stub{member: m, shard: given.Shard, running: given.Running}, nil
}

// stub is a shard's work: it reports its beginning and its end.
type stub struct {
	member  *member
	shard   shard.Shard
	running func()
}

var works atomic.Int64

// Warm implements fleet.Instance.
func (s *stub) Warm(context.Context) error { return nil }

// CatchUp implements fleet.Instance.
func (s *stub) CatchUp(context.Context, fence.Writes) error { return nil }

// Close implements fleet.Instance.
func (s *stub) Close() {}

// Weigh implements fleet.Weigher.
func (s *stub) Weigh() map[string]int64 { return census(s.shard.Range, s.shard.Namespaced()) }

// Load implements fleet.Loader.
func (s *stub) Load() (fleet.Load, bool) { return fleet.Load{Fixed: 3 << 20}, true }

// Run implements fleet.Instance.
func (s *stub) Run(ctx context.Context) error {
	m := message{Kind: begun, Member: s.member.name, Work: works.Add(1), Group: s.shard.Group}
	if s.shard.Namespaced() {
		m.Range = s.shard.Range.String()
	}
	s.member.crew.send(m)
	s.running()
	<-ctx.Done()
	s.member.crew.send(message{Kind: ended, Member: s.member.name, Work: m.Work})
	return nil
}

// leases reports to the crew which requests read all Leases.
type leases struct {
	coordinationclient.LeaseInterface
	member *member
}

// List implements fleet.Leases.
func (l leases) List(ctx context.Context, opts metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	l.member.crew.send(message{Kind: listed, Member: l.member.name, Text: "list"})
	return l.LeaseInterface.List(ctx, opts)
}

// Watch implements fleet.Leases.
func (l leases) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if opts.SendInitialEvents != nil && *opts.SendInitialEvents {
		l.member.crew.send(message{Kind: listed, Member: l.member.name, Text: "watch"})
	} else {
		l.member.crew.send(message{Kind: watched, Member: l.member.name})
	}
	return l.LeaseInterface.Watch(ctx, opts)
}

// countedConn counts the bytes that a crew receives and sends, TLS included.
type countedConn struct {
	net.Conn
	crew *crew
}

// Read implements net.Conn.
func (c countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.crew.received.Add(int64(n))
	return n, err
}

// Write implements net.Conn.
func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.crew.sent.Add(int64(n))
	return n, err
}

// liveHeap returns the live heap after the last garbage collection, in bytes.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// namespaces are the cluster's namespaces, by name.
var namespaces = sync.OnceValue(func() []string {
	names := make([]string, 0, manyNamespaces)
	for i := range manyNamespaces {
		names = append(names, nameOf(i))
	}
	return names
})

const manyNamespaces = 3000

// census returns the weights of a range's namespaces, the same each time.
func census(r shard.Range, namespaced bool) map[string]int64 {
	weights := map[string]int64{}
	if namespaced {
		for i, name := range namespaces() {
			if r.ContainsNamespace(name) {
				weights[name] = int64(20 + i%50)
			}
		}
	}
	return weights
}
