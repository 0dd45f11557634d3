package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// The API server's counters of filtered watches and events, for ConfigMaps.
const (
	watchesOfShards = `apiserver_watch_shards_total{group="",resource="configmaps"}`
	eventsFiltered  = `apiserver_watch_filtered_events_total{group="",resource="configmaps"}`
)

// metric returns one metric of the API server, or 0 if it does not exist.
func metric(t testing.TB, config *rest.Config, name string) int {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, len(raw)+1)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
	}
	return 0
}

// settledMetric returns a metric once it stops changing: the API server notices the end of a watch
// later than the client.
func settledMetric(t testing.TB, config *rest.Config, name string) int {
	t.Helper()
	last, same := metric(t, config, name), 0
	eventually(t, func() error {
		n := metric(t, config, name)
		if n == last {
			same++
		} else {
			last, same = n, 0
		}
		if same < 10 {
			return fmt.Errorf("%s still changes, at %d", name, n)
		}
		return nil
	})
	return last
}

// awaitCount waits until a count of dropped events reaches want and stops changing. Two of three
// events for each created object are dropped. It fails at once if there are too many.
func awaitCount(t *testing.T, what string, want int, count func() int) {
	t.Helper()
	same := 0
	eventually(t, func() error {
		got := count()
		if got > want {
			t.Fatalf("%d %s, want %d: each is for one shard of three", got, what, want)
		}
		if got < want {
			return fmt.Errorf("%d %s, want %d: each is for one shard of three", got, what, want)
		}
		if same++; same < 5 {
			return fmt.Errorf("%d %s: are there more?", got, what)
		}
		return nil
	})
}

// filterTest is three shards of equal ranges that read ConfigMaps, and a mutator with empty
// namespaces.
type filterTest struct {
	*process
	mutator    *mutator
	namespaces []string
	config     *rest.Config
}

func startFilterTest(t *testing.T, w *wire, random *rand.Rand, namespaces int) *filterTest {
	t.Helper()
	f := &filterTest{config: plane.AdminConfig()}
	f.mutator = newMutator(t, random, f.config)
	var names []types.NamespacedName
	for range namespaces {
		name := uuid(random)
		f.namespaces = append(f.namespaces, name)
		names = append(names, types.NamespacedName{Name: name})
	}
	f.mutator.create(namespaceSubject, names...)
	ranges, err := shard.EqualRanges(3)
	if err != nil {
		t.Fatal(err)
	}
	f.process = startProcessOver(t, w, "process", f.config, ranges, []subject{configMapSubject})
	f.compare(t)
	return f
}

// fill creates ConfigMaps while the shards watch.
func (f *filterTest) fill(t *testing.T, each int) (created int) {
	t.Helper()
	var names []types.NamespacedName
	for _, namespace := range f.namespaces {
		for i := range each {
			names = append(names, types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("c-%d", i)})
		}
	}
	f.mutator.create(configMapSubject, names...)
	f.compare(t)
	return len(names)
}

func (f *filterTest) compare(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		want, err := live(t.Context(), f.mutator.metadata, configMapsResource)
		if err != nil {
			return err
		}
		fault, difference := f.check(configMapSubject, want)
		if fault != nil {
			t.Fatal(fault)
		}
		return difference
	})
}

// TestServerFilters shows that a server with the feature sends each shard only its part, and that
// equal ranges of evenly spread namespaces are equal parts.
func TestServerFilters(t *testing.T) {
	before := settledMetric(t, plane.AdminConfig(), watchesOfShards)
	// The bounds below are three and a half standard deviations wide. With new names each time, one
	// run in a thousand would exceed them.
	f := startFilterTest(t, newWire(), rand.New(rand.NewPCG(1, 0)), 300)
	if got := settledMetric(t, f.config, watchesOfShards) - before; got != 3 {
		t.Errorf("API server counts %d watches of shards, want 3", got)
	}
	filtered := settledMetric(t, f.config, eventsFiltered)
	created := f.fill(t, 3)
	// When all caches are right, a watch may not have reached the last events, which are for the
	// others.
	awaitCount(t, "events that the API server filtered", 2*created, func() int { return metric(t, f.config, eventsFiltered) - filtered })
	f.checkMode(t, informer.ServerSide)
	for _, c := range f.shards {
		n := c.factory.Objects()[configMapsResource]
		share := float64(n) / float64(created)
		t.Logf("Shard %s: %d objects, %.3f of all", c.within, n, share)
		if share < 0.23 || share > 0.43 {
			t.Errorf("shard %s holds %d of %d objects, want about a third", c.within, n, created)
		}
	}
	for len(f.shards) > 0 {
		f.stop(0)
	}
	// This version of the API server decrements each watch twice when it ends.
	eventually(t, func() error {
		if got := metric(t, f.config, watchesOfShards); got > before {
			return fmt.Errorf("API server counts %d watches of shards after their end, and %d before", got, before)
		}
		return nil
	})
}

// TestServersOfTwoMinds has a server with the feature answer lists and one without answer watches,
// as in an upgrade behind a load balancer.
func TestServersOfTwoMinds(t *testing.T) {
	w := newWire()
	w.forget = true
	f := startFilterTest(t, w, newRandom(t), 10)
	discarded := f.pool.Discarded()
	created := f.fill(t, 5)
	// When all caches are right, a shard may not have reached the last events, which are for the
	// others.
	awaitCount(t, "events discarded", 2*created, func() int { return int(f.pool.Discarded() - discarded) })
	if got := f.pool.Modes()[configMapsResource]; got != informer.ServerSide {
		t.Errorf("the filter is reported at the %s; this test requires a wrong report", got)
	}
}
