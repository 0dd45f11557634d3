// Package result is the JSON result of benchmark runs: a File for each run of the command, a Run
// for each system under one scenario in one round. It has what was measured and nothing that can be
// computed from it: medians, ratios and slopes belong to the report.
//
// Units: seconds, bytes, counts. An unmeasured figure is absent (a nil pointer), never zero.
package result

import "time"

// File is one run of the benchmark command.
type File struct {
	Began    time.Time         `json:"began"`
	Machine  Machine           `json:"machine"`
	Versions map[string]string `json:"versions"` // "flotilla" (commit), "kubernetes", "etcd", "go", …
	Command  string            `json:"command"`
	Runs     []Run             `json:"runs"`
}

// Machine is where it ran.
type Machine struct {
	CPU    string `json:"cpu"` // the model's name
	Cores  int    `json:"cores"`
	Memory uint64 `json:"memory"` // bytes
	Kernel string `json:"kernel"`
	// Load is the load average over one minute when the run began, other work included.
	Load float64 `json:"load"`
}

// System is what runs the controllers.
type System struct {
	// Kind is Stock, Fleet or Ceiling.
	Kind string `json:"kind"`
	// Replicas is the number of members; 1 for stock.
	Replicas int `json:"replicas"`
	// Gate is set if the API server's feature gate ShardedListAndWatch is on.
	Gate bool `json:"gate"`
	// Rate is RateDefault, RateEqual or RateHigh.
	Rate string `json:"rate"`
}

// Kinds of System.
const (
	Stock   = "stock"
	Fleet   = "fleet"
	Ceiling = "ceiling" // the load generator that repeats the writes without reading
)

// Rates of the clients' limits.
const (
	RateDefault = "default" // upstream's default flags in each process: 20 a second and bursts of 30 per controller
	RateEqual   = "equal"   // stock's defaults for the whole fleet: --share-kube-api-limits
	RateHigh    = "high"    // limits so high that CPU is the bound
)

// Run is one system under one scenario, once.
type Run struct {
	Scenario string         `json:"scenario"` // basic, scale-out, rolling-update, chaos, steady, burst, …
	Params   map[string]int `json:"params"`   // its size: namespaces, deployments, pods, …
	System   System         `json:"system"`
	Round    int            `json:"round"` // from 1
	// Failed says why the run gave no figures; empty for one that did.
	Failed string `json:"failed,omitempty"`
	// Bound says what the scenario waited for, judged by idle CPU and the clients' limits:
	// "latency" or "cpu".
	Bound string `json:"bound,omitempty"`

	// Seconds is the time from the first write of the work until it was done; for steady, the
	// observation time.
	Seconds float64 `json:"seconds"`
	// Objects is how many objects controllers had to bring to their wanted state, the divisor of
	// "per object".
	Objects int `json:"objects,omitempty"`
	// Phases are the parts of Seconds, in order: create, churn, …
	Phases []Phase `json:"phases,omitempty"`

	// LongestGap is the longest time in Seconds in which a watcher saw no controller act.
	LongestGap *float64 `json:"longestGap,omitempty"`

	Processes []Process `json:"processes"` // the controller managers
	// Servers are the API server ("kube-apiserver") and etcd, over the same time.
	Servers []Process `json:"servers"`

	LeaseWrites   *int64    `json:"leaseWrites,omitempty"`   // writes to Leases of the controller managers, in Seconds
	Queue         *Quantile `json:"queue,omitempty"`         // time of an item in a workqueue, over all processes
	Reconcile     *Quantile `json:"reconcile,omitempty"`     // time of a reconcile
	Latency       *Quantile `json:"latency,omitempty"`       // from an object's write to its wanted state, as a watcher saw it
	RequestsByAll *int64    `json:"requestsByAll,omitempty"` // mutating requests of the controller managers
	// Kinds is what the API server has sent to all of its clients since the controller managers
	// began, in lists and watch events before compression: bytes by kind ("pods",
	// "replicasets.apps"), including objects of which only metadata was requested.
	Kinds map[string]int64 `json:"kinds,omitempty"`
}

// Phase is a part of a run.
type Phase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// Process is one process, over the time of the run unless a field says otherwise.
type Process struct {
	Name string  `json:"name"` // "stock", "member-0", "kube-apiserver"
	CPU  float64 `json:"cpu"`  // seconds, user and system, in Run.Seconds
	// StartCPU is what the process used before the work began: starting and filling its caches.
	StartCPU *float64 `json:"startCPU,omitempty"`
	RSS      uint64   `json:"rss"`                // bytes, at the end
	PeakRSS  uint64   `json:"peakRSS"`            // bytes, highest since the process began
	Heap     *uint64  `json:"heap,omitempty"`     // bytes that survive a collection, at the end
	EmptyRSS *uint64  `json:"emptyRSS,omitempty"` // bytes of the same process on a cluster without objects
	// EmptyHeap is Heap on a cluster without objects.
	EmptyHeap *uint64 `json:"emptyHeap,omitempty"`
	// StartReceived is what came from the API server before the work began, and Received what came
	// during it: bytes on the wire, TLS included.
	StartReceived *int64 `json:"startReceived,omitempty"`
	Received      *int64 `json:"received,omitempty"`
	Sent          *int64 `json:"sent,omitempty"`
	// GroupReceived is the part of StartReceived and Received for the shards of the cluster ring.
	GroupReceived *int64 `json:"groupReceived,omitempty"`
	Watches       *int   `json:"watches,omitempty"` // open at the end
	// Kinds are the watches by kind, with the suffix " (metadata)" if only metadata is requested.
	Kinds      map[string]int `json:"kinds,omitempty"`
	Goroutines *int           `json:"goroutines,omitempty"`
	// Shards is how many shards of each ring it held at the end; nil for stock. Groups are the
	// shards of the cluster ring.
	Shards map[string]int `json:"shards,omitzero"`
	Groups []string       `json:"groups,omitempty"`
	// Namespaces is how many of the scenario's namespaces were in its shards when the work began;
	// nil for stock.
	Namespaces *int `json:"namespaces,omitempty"`
}

// Quantile of a distribution, in seconds.
type Quantile struct {
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Count int64   `json:"count"`
}
