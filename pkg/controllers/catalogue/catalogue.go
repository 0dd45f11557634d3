package catalogue

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	kubectrlmgrconfig "k8s.io/kubernetes/pkg/controller/apis/config"
)

// Scope says what one instance of a controller may decide over.
type Scope string

const (
	// ScopeNamespaced is for a controller whose reconcile reads and writes objects
	// of one namespace, besides cluster-scoped objects that it only reads or that
	// belong to that namespace alone (the Namespace itself, the volume bound to one
	// of its claims). It runs once per range of namespaces.
	ScopeNamespaced Scope = "namespaced"
	// ScopeCluster is for every other controller. It runs once in the fleet.
	ScopeCluster Scope = "cluster"
)

// The groups of cluster controllers. Those of one group share heavy informers,
// so that few members cache all pods, and always run in the same shard.
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
	// Scope says whether it runs once per range of namespaces or once in the fleet.
	Scope Scope
	// EarlierScope is another scope that plans of an earlier build give to the controller, empty
	// for none. A plan may keep it there until an operator changes it.
	EarlierScope Scope
	// Group is the group of a cluster controller, empty for a namespaced one.
	Group string
	// Why says what one reconcile reads and writes, and why that makes Scope right.
	Why string
	// Clients lists what the constructor asks of its client builder.
	Clients []Client
	// Needs lists what the runner must provide besides the usual.
	Needs []Need
	// Parts lists the kinds of which the controller reads no more than a field selector names, though its informer
	// would hold all objects: it must be given no more.
	Parts []Part
	// Slim lists the kinds of which the controller reads so little of each object that it is given slim
	// copies (pkg/controllers/slim); of namespaced kinds only where the shard is of everything. It has no
	// Parts then, and does not need one cache.
	Slim []schema.GroupVersionResource
	// UpdatesSlim says that it updates the status of Pods by cached ones: its client must put that over
	// what the API server has. Nobody writes a Node by a slim copy.
	UpdatesSlim bool
	// Casts lists the resources whose objects it casts though it asks for them by resource and not by type. Of all
	// others that it asks for so it reads the metadata alone.
	Casts []schema.GroupResource
	// AwaitUpdates says that the controller begins a sync from the cache without asking whether
	// that has seen what the last one wrote: in a short queue it would often send an old version
	// again. Its updates return when the cache has seen them. That is wrong for a controller that
	// remembers its own writes to tell them from those of others, such as endpointslice: it
	// remembers one when the update returns, and its handlers must not be called before.
	AwaitUpdates bool
	// BuildAfterClaim says that the constructor takes a snapshot of the cluster on
	// which Run relies: build it only while the shard's claim is held, never to warm
	// up.
	BuildAfterClaim bool
	// BuildHazards says what the constructor does besides registering handlers and
	// indexers, empty when nothing.
	BuildHazards string
	// RestartHazards says what is left in the process by an earlier instance or
	// shared with another one, with its source, empty when nothing.
	RestartHazards string
	// Forgets says what an instance keeps in memory only and a successor starts
	// afresh, where an operator could see it; empty when nothing.
	Forgets string
	// ActsOutside says what it does beside requests to the API server, empty when nothing: what no
	// fence in a client can refuse.
	ActsOutside string
	// Picture says what it keeps in memory that others fill and that it decides by, and
	// what it waits for before it does; zero when it decides by listers, by what it asks
	// for and by its own writes.
	Picture Picture

	workers field
}

// field gives a pointer to one field of a configuration.
type field func(*Config) *int32

// Workers returns pointers to the fields of c that say how many workers the
// controller runs; none where upstream hard-codes it. A runner divides them over the
// shards that share the work, and leaves at least one.
func (r Row) Workers(c *Config) []*int32 { return r.workers.of(c) }

func (f field) of(c *Config) []*int32 {
	if f == nil {
		return nil
	}
	return []*int32{f(c)}
}

// Part is what a controller reads of one kind.
type Part struct {
	// Resource is the kind.
	Resource schema.GroupVersionResource
	// Selector is the field selector that names the part.
	Selector string
	// Why says where upstream looks at no other objects.
	Why string
}

// Via says which method of the client builder a constructor calls.
type Via string

const (
	// ViaClient is Client (or ClientOrDie): one client set, one rate limiter.
	ViaClient Via = "client"
	// ViaConfig is Config: the constructor builds one or more clients from it, each
	// with a rate limiter of its own unless the config carries one.
	ViaConfig Via = "config"
	// ViaDiscovery is DiscoveryClient. Upstream's builders give it 20 queries a
	// second and a burst of 200, whatever the flags say.
	ViaDiscovery Via = "discovery"
	// ViaCA is Config, read only for the CA it carries and only without
	// --root-ca-file. No client is built from it.
	ViaCA Via = "ca"
)

// Client is one request of a constructor to its client builder.
type Client struct {
	// Name is the client's name: its user agent, and its service account with
	// --use-service-account-credentials. Several controllers may use the same one.
	Name string
	// Via is the method called.
	Via Via
	// QPS and Burst are the factors by which the constructor multiplies the limits
	// of the config it gets; 1 where it does not. They have no effect on a config
	// that carries a rate limiter.
	QPS, Burst int
}

// Need is something that an instance relies on and does not bring along.
type Need string

const (
	// NeedNamespaceFilter: the informer of Namespace objects, which are
	// cluster-scoped, must be filtered by the hash of the object's own name.
	NeedNamespaceFilter Need = "namespace filter"
	// NeedPodNodeNameIndex: the pod informer must have the index spec.nodeName
	// (pkg/controller.AddPodNodeNameIndexer). Upstream relies on node-lifecycle or
	// daemonset having added it.
	NeedPodNodeNameIndex Need = "pod index spec.nodeName"
	// NeedGraphBuilder: ControllerContext.GraphBuilder must be set, and run by the
	// garbage collector of the same shard.
	NeedGraphBuilder Need = "graph builder"
	// NeedOneCache: both factories' ForResource must answer with the same informer, typed for Casts. To be built after
	// all others of its shard, so that it can be given the typed informers that those have asked for, and the metadata
	// of all else.
	NeedOneCache Need = "one cache"
	// NeedRootClient: built by hand with the root client builder, before all others
	// of its shard, because it mints the tokens that others may use.
	NeedRootClient Need = "root client"
)

// All returns the rows of all controllers, sorted by name.
func All() []Row {
	rows := slices.Concat(namespacedRows(), clusterRows())
	pictures := pictures()
	for i := range rows {
		rows[i].Picture = pictures[rows[i].Name]
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Name, b.Name) })
	return otherRows(rows)
}

// Lookup returns the row of the controller with this name. Aliases are unknown.
func Lookup(name string) (Row, bool) {
	rows := All()
	i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name })
	if i < 0 {
		return Row{}, false
	}
	return rows[i], true
}

// Forgetful returns the names of the controllers that have something in Row.Forgets, sorted.
func Forgetful() []string { return namesOf(func(r Row) bool { return r.Forgets != "" }) }

// Groups returns the groups of cluster controllers, in a fixed order.
func Groups() []string {
	return []string{GroupNodes, GroupVolumes, GroupGarbage, GroupCertificates, GroupPolicy}
}

// Namespaced returns the names of the namespaced controllers, sorted.
func Namespaced() []string {
	return namesOf(func(r Row) bool { return r.Scope == ScopeNamespaced })
}

// Group returns the names of the cluster controllers of one group, sorted; none
// for a group that does not exist.
func Group(name string) []string {
	return namesOf(func(r Row) bool { return r.Scope == ScopeCluster && r.Group == name })
}

func namesOf(keep func(Row) bool) []string {
	var result []string
	for _, row := range All() {
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
