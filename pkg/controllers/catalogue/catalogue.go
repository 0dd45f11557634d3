package catalogue

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kubectrlmgrconfig "k8s.io/kubernetes/pkg/controller/apis/config"
)

// Scope says what one instance of a controller may decide over.
type Scope string

const (
	// ScopeNamespaced is for a controller whose reconcile reads and writes objects of one
	// namespace, besides cluster-scoped objects that it only reads or that belong to that namespace
	// alone (the Namespace itself, the volume bound to one of its claims). It runs once for each
	// range of namespaces.
	ScopeNamespaced Scope = "namespaced"
	// ScopeCluster is for every other controller. It runs once in the fleet.
	ScopeCluster Scope = "cluster"
)

// The groups of cluster controllers. Those of one group share heavy informers, so that few members
// cache all pods, and always run in the same shard.
const (
	GroupNodes        = "nodes"        // all pods, nodes, leases, resource claims and slices
	GroupVolumes      = "volumes"      // all pods, claims, volumes
	GroupGarbage      = "garbage"      // metadata of everything
	GroupCertificates = "certificates" // certificate signing requests
	GroupPolicy       = "policy"       // small cluster-scoped objects
)

// Config is the configuration that upstream's flags fill.
type Config = kubectrlmgrconfig.KubeControllerManagerConfiguration

// Row is what the catalogue knows about one controller.
type Row struct {
	// Name is upstream's name of the controller.
	Name string
	// Scope says whether it runs once for each range of namespaces or once in the fleet.
	Scope Scope
	// EarlierScope is another scope that plans of an earlier build give to the controller, empty
	// for none. A plan may keep it there until an operator changes it.
	EarlierScope Scope
	// Group is the group of a cluster controller, empty for a namespaced one.
	Group string
	// Why says what one reconcile reads and writes, and why that makes Scope right.
	Why string
	// Clients lists the constructor's requests to its client builder.
	Clients []Client
	// Needs lists what the runner must provide besides the usual.
	Needs []Need
	// FieldSelectors lists the kinds of which the controller reads only what a field selector names,
	// although its informer would hold all objects: it must be given only that part.
	FieldSelectors []FieldSelector
	// Slim lists the kinds of which the controller reads so little that it gets slim copies
	// (pkg/controllers/slim); of namespaced kinds only if the shard is of everything. Such a
	// controller has no FieldSelectors, and does not need one cache.
	Slim []schema.GroupVersionResource
	// UpdatesSlim says that the controller updates the status of Pods from cached ones: its client
	// must apply that to the Pod in the API server. Nobody writes a Node from a slim copy.
	UpdatesSlim bool
	// TypedKinds lists the resources whose objects the controller casts although it asks for them by
	// resource, not by type. Of all other resources that it asks for in this way it reads only the
	// metadata.
	TypedKinds []schema.GroupResource
	// AwaitUpdates says that the controller begins a sync from the cache without checking whether
	// that has seen the write of the last sync: in a short queue it would often send an old version
	// again. Its updates return when the cache has seen them. That is wrong for a controller that
	// remembers its own writes to distinguish them from others', such as endpointslice: it
	// remembers a write when the update returns, and its handlers must not be called before.
	AwaitUpdates bool
	// BuildAfterClaim says that the constructor takes a snapshot of the cluster on which Run
	// relies: build it only while the shard's claim is held, never to warm up.
	BuildAfterClaim bool
	// BuildHazards says what the constructor does besides registering handlers and indexers; empty
	// for nothing.
	BuildHazards string
	// RestartHazards says what an earlier instance leaves in the process or shares with another
	// one, with its source; empty for nothing.
	RestartHazards string
	// Forgets says what an instance keeps only in memory and a successor starts again, where an
	// operator could notice; empty for nothing.
	Forgets string
	// ActsOutside says what the controller does besides requests to the API server, which no fence
	// in a client can refuse; empty for nothing.
	ActsOutside string
	// Picture describes the state in memory that others fill and that the controller decides by,
	// and what it waits for first; zero if it decides by listers, by requests and by its own
	// writes.
	Picture Picture

	workers field
}

// field returns a pointer to one field of a configuration.
type field func(*Config) *int32

// Workers returns pointers to the fields of c that say how many workers the controller runs; none
// if upstream hard-codes the number. A runner divides them over the shards that share the work, and
// leaves at least one.
func (r Row) Workers(c *Config) []*int32 { return r.workers.of(c) }

func (f field) of(c *Config) []*int32 {
	if f == nil {
		return nil
	}
	return []*int32{f(c)}
}

// FieldSelector names the part of one kind that a controller reads.
type FieldSelector struct {
	// Resource is the kind.
	Resource schema.GroupVersionResource
	// Selector is the field selector that names the part.
	Selector string
	// Why says where upstream ignores all other objects.
	Why string
}

// Via says which method of the client builder a constructor calls.
type Via string

const (
	// ViaClient is Client (or ClientOrDie): one client set, one rate limiter.
	ViaClient Via = "client"
	// ViaConfig is Config: the constructor builds one or more clients from it, each with its own
	// rate limiter unless the config carries one.
	ViaConfig Via = "config"
	// ViaDiscovery is DiscoveryClient. Upstream's builders give it 20 queries a second and a burst
	// of 200, whatever the flags say.
	ViaDiscovery Via = "discovery"
	// ViaCA is Config, read only for the CA it carries and only without --root-ca-file. No client
	// is built from it.
	ViaCA Via = "ca"
)

// Client is one request of a constructor to its client builder.
type Client struct {
	// Name is the client's name: its user agent, and its service account with
	// --use-service-account-credentials. Several controllers may use the same one.
	Name string
	// Via is the method called.
	Via Via
	// QPS and Burst are the factors by which the constructor multiplies the limits of the config it
	// gets; 1 if it does not. They have no effect on a config that carries a rate limiter.
	QPS, Burst int
	// Busy is how many of the clients that the constructor builds from one config send most of its
	// requests, each within a limit of its own; 0 means 1.
	Busy int
}

// Need is something that an instance relies on and does not bring along.
type Need string

const (
	// NeedNamespaceFilter: the informer of Namespace objects, which are cluster-scoped, must be
	// filtered by the hash of the object's own name.
	NeedNamespaceFilter Need = "namespace filter"
	// NeedPodNodeNameIndex: the pod informer must have the index spec.nodeName
	// (pkg/controller.AddPodNodeNameIndexer). Upstream relies on node-lifecycle or daemonset having
	// added it.
	NeedPodNodeNameIndex Need = "pod index spec.nodeName"
	// NeedGraphBuilder: ControllerContext.GraphBuilder must be set, and run by the garbage
	// collector of the same shard.
	NeedGraphBuilder Need = "graph builder"
	// NeedOneCache: both factories' ForResource must return the same informer, typed for TypedKinds.
	// Build the controller after all others of its shard, so that it gets the typed informers that
	// those have asked for, and the metadata of everything else.
	NeedOneCache Need = "one cache"
	// NeedRootClient: built by hand with the root client builder, before all others of its shard,
	// because it mints the tokens that others may use.
	NeedRootClient Need = "root client"
)

// All returns the rows of all controllers, sorted by name.
func All() []Row {
	rows := slices.Clone(all())
	for i := range rows {
		rows[i] = rows[i].clone()
	}
	return rows
}

// Lookup returns the row of the controller with this name. It does not know aliases.
func Lookup(name string) (Row, bool) {
	rows := all()
	i, ok := slices.BinarySearchFunc(rows, name, func(r Row, name string) int { return cmp.Compare(r.Name, name) })
	if !ok {
		return Row{}, false
	}
	return rows[i].clone(), true
}

// clone returns a copy that shares nothing with r.
func (r Row) clone() Row {
	r.Clients, r.Needs, r.FieldSelectors = slices.Clone(r.Clients), slices.Clone(r.Needs), slices.Clone(r.FieldSelectors)
	r.Slim, r.TypedKinds = slices.Clone(r.Slim), slices.Clone(r.TypedKinds)
	return r
}

// all are the rows, sorted by name. Building a shard looks up a row some hundred times.
var all = sync.OnceValue(func() []Row {
	rows := slices.Concat(namespacedRows(), clusterRows())
	pictures := pictures()
	for i := range rows {
		rows[i].Picture = pictures[rows[i].Name]
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Name, b.Name) })
	return otherRows(rows)
})

// Forgetful returns the names of the controllers with a Row.Forgets, sorted.
func Forgetful() []string { return namesOf(func(r Row) bool { return r.Forgets != "" }) }

// Groups returns the groups of cluster controllers, in a fixed order.
func Groups() []string {
	return []string{GroupNodes, GroupVolumes, GroupGarbage, GroupCertificates, GroupPolicy}
}

// Namespaced returns the names of the namespaced controllers, sorted.
func Namespaced() []string {
	return namesOf(func(r Row) bool { return r.Scope == ScopeNamespaced })
}

// Group returns the names of the cluster controllers of one group, sorted; none for an unknown
// group.
func Group(name string) []string {
	return namesOf(func(r Row) bool { return r.Scope == ScopeCluster && r.Group == name })
}

func namesOf(keep func(Row) bool) []string {
	var result []string
	for _, row := range all() {
		if keep(row) {
			result = append(result, row.Name)
		}
	}
	return result
}

func client(name string) Client    { return Client{Name: name, Via: ViaClient, QPS: 1, Burst: 1} }
func discovery(name string) Client { return Client{Name: name, Via: ViaDiscovery, QPS: 1, Burst: 1} }
func ca(name string) Client        { return Client{Name: name, Via: ViaCA, QPS: 1, Burst: 1} }

// config is a request for a config whose limits are multiplied by qps and burst.
func config(name string, qps, burst int) Client {
	return Client{Name: name, Via: ViaConfig, QPS: qps, Burst: burst}
}
