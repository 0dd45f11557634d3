package shadow

import (
	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Family is a metric of a shadow.
type Family struct {
	Name, Kind string
	Labels     []string
	desc       *k8smetrics.Desc
}

var families []Family

func define(name, kind, help string, labels ...string) *k8smetrics.Desc {
	d := k8smetrics.NewDesc("flotilla_shadow_"+name, help, labels, nil, k8smetrics.ALPHA, "")
	families = append(families, Family{"flotilla_shadow_" + name, kind, labels, d})
	return d
}

const (
	gauge   = "gauge"
	counter = "counter"
)

var (
	isFull       = define("caches_full", gauge, "1 if all shards run with full caches, else 0.")
	writeObjects = define("write_objects", gauge, "Objects that controllers would have written.", "verb", "resource")
	writeLasting = define("write_objects_lasting", gauge, "Those of them that the controllers tried again to write after half a minute.", "verb", "resource")
	writeTries   = define("write_attempts_total", counter, "Writes that the shadow has refused.", "verb", "resource")
	openWatches  = define("watches", gauge, "Watches that are open.")
	watchEvents  = define("watch_events_total", counter, "Events that watches have brought, bookmarks and what a watch begins with included.")
	received     = define("received_bytes_total", counter, "Bytes of answers to reads.")
	refusedReads = define("refused_reads_total", counter, "Reads that the API server has refused.")
	missing      = define("missing_rights", gauge, "Kinds of requests that a member would make and may not.")
	unknown      = define("unknown_rights", gauge, "Kinds of requests that a member would make, of which it is not known whether it may.")
	uncounted    = define("uncounted_attempts_total", counter, "Attempts to write objects that there was no room to follow.")
)

// Families returns all metrics of a shadow, to compare a page with them.
func Families() []Family { return families }

// collector reads the metrics when it is asked.
type collector struct {
	k8smetrics.BaseStableCollector
	shadow *Shadow
	full   func() bool
}

// Register puts the metrics on /metrics. Call it once in a process. full reports whether the caches
// are full.
func (s *Shadow) Register(full func() bool) {
	legacyregistry.CustomMustRegister(&collector{shadow: s, full: full})
}

// RegisterWith puts the metrics into another registry.
func (s *Shadow) RegisterWith(registry k8smetrics.KubeRegistry, full func() bool) {
	registry.CustomMustRegister(&collector{shadow: s, full: full})
}

// DescribeWithStability implements k8smetrics.StableCollector.
func (c *collector) DescribeWithStability(ch chan<- *k8smetrics.Desc) {
	for _, f := range families {
		ch <- f.desc
	}
}

// CollectWithStability implements k8smetrics.StableCollector.
func (c *collector) CollectWithStability(ch chan<- k8smetrics.Metric) {
	send := func(d *k8smetrics.Desc, kind k8smetrics.ValueType, value float64, labels ...string) {
		ch <- k8smetrics.NewLazyConstMetric(d, kind, value, labels...)
	}
	full := 0.0
	if c.full() {
		full = 1
	}
	send(isFull, k8smetrics.GaugeValue, full)
	// Without the client, which the report shows.
	type labels struct{ verb, resource string }
	sums := map[labels]Write{}
	all, _, unfollowed := c.shadow.writes.list()
	for _, w := range all {
		l := labels{w.Verb, w.Name()}
		sum := sums[l]
		sum.Objects += w.Objects
		sum.Lasting += w.Lasting
		sum.Attempts += w.Attempts
		sums[l] = sum
	}
	for l, sum := range sums {
		send(writeObjects, k8smetrics.GaugeValue, float64(sum.Objects), l.verb, l.resource)
		send(writeLasting, k8smetrics.GaugeValue, float64(sum.Lasting), l.verb, l.resource)
		send(writeTries, k8smetrics.CounterValue, float64(sum.Attempts), l.verb, l.resource)
	}
	reads := total(c.shadow.load.list())
	send(openWatches, k8smetrics.GaugeValue, float64(reads.Open))
	send(watchEvents, k8smetrics.CounterValue, float64(reads.Events))
	send(received, k8smetrics.CounterValue, float64(reads.Bytes))
	send(refusedReads, k8smetrics.CounterValue, float64(reads.Refused))
	rights := c.shadow.rights.list()
	send(missing, k8smetrics.GaugeValue, float64(len(rights.Missing)))
	send(unknown, k8smetrics.GaugeValue, float64(rights.Unanswered))
	send(uncounted, k8smetrics.CounterValue, float64(unfollowed))
}
