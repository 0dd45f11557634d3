package cloud

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/test/cloud/provider"
	"github.com/flotilla-kube/flotilla/test/cloud/sky"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	// port is the port of each Service.
	port = 8080
	// answerWithin is how long a load balancer may take to answer.
	answerWithin = 5 * time.Second
	// workers create and delete objects.
	workers = 16
)

// Cluster is a cluster in a cloud. Its methods may be called concurrently.
type Cluster struct {
	Plane  *controlplane.ControlPlane
	Client kubernetes.Interface
	Sky    *sky.Server

	// network is the third number of the nodes' addresses.
	network int

	mu        sync.Mutex
	nodes     []string // Addresses.
	listeners []net.Listener
	serving   sync.WaitGroup
}

// clusters counts those of this process. Each has node addresses of its own: two API servers may
// give the same node port.
var clusters atomic.Int32

// NewCluster starts a cloud for a control plane.
func NewCluster(plane *controlplane.ControlPlane, options sky.Options) (*Cluster, error) {
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		return nil, err
	}
	clouds, err := sky.Start(options)
	if err != nil {
		return nil, err
	}
	network := (os.Getpid() + int(clusters.Add(1))) % 256
	return &Cluster{Plane: plane, Client: client, Sky: clouds, network: network}, nil
}

// Close ends the cloud and the endpoints. Stop all managers first.
func (w *Cluster) Close() {
	w.Sky.Close()
	w.mu.Lock()
	listeners := w.listeners
	w.mu.Unlock()
	for _, l := range listeners {
		_ = l.Close()
	}
	w.serving.Wait()
}

// Spec says which cloud controller manager to start.
type Spec struct {
	// Name is the name of the process, the member and the cloud's client.
	Name string
	// Kind is provider.Stock or provider.Fleet.
	Kind string
	// Config is the provider's. Start fills in URL and Token.
	Config provider.Config
	// Flags are added to the required ones.
	Flags []string
}

// Start starts a cloud controller manager: this program again, which must call provider.MainIfAsked
// first.
func (w *Cluster) Start(spec Spec) (*harness.Manager, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	file, err := w.CloudConfig(spec)
	if err != nil {
		return nil, err
	}
	port, err := controlplane.FreePort()
	if err != nil {
		return nil, err
	}
	args := append([]string{provider.Verb, spec.Kind}, w.Flags(file)...)
	args = append(args, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port))
	if spec.Kind == provider.Fleet {
		args = append(
			args, "--member-name="+spec.Name, "--rebalance-delay=0s", "--replan-interval=0s",
		)
	}
	process, err := w.Plane.StartProcess(spec.Name, binary, append(args, spec.Flags...))
	if err != nil {
		return nil, err
	}
	client, err := harness.HTTPClient(w.Plane.AdminConfig())
	if err != nil {
		return nil, err
	}
	return harness.Attach(process, fmt.Sprintf("https://127.0.0.1:%d", port), client), nil
}

// CloudConfig writes the provider's configuration to a file and returns its path.
func (w *Cluster) CloudConfig(spec Spec) (string, error) {
	c := spec.Config
	c.URL, c.Token = w.Sky.URL(), spec.Name
	text, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	file := filepath.Join(w.Plane.Dir(), "cloud-"+spec.Name+".json")
	return file, os.WriteFile(file, text, 0o600)
}

// Flags returns the flags that every cloud controller manager must have.
func (w *Cluster) Flags(cloudConfig string) []string {
	kubeconfig := w.Plane.AdminKubeconfig()
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--cloud-provider=" + provider.Name, "--cloud-config=" + cloudConfig,
		"--cluster-name=test", "--cluster-cidr=10.128.0.0/9", "--route-reconciliation-period=1s",
	}
}

// AddNodes adds machines to the cloud, and the nodes that their kubelets would register.
func (w *Cluster) AddNodes(ctx context.Context, count int) error {
	for range count {
		w.mu.Lock()
		n := len(w.nodes) + 1
		address := fmt.Sprintf("127.32.%d.%d", w.network, n)
		w.nodes = append(w.nodes, address)
		w.mu.Unlock()
		name := fmt.Sprintf("node-%d", n)
		w.Sky.AddInstance(
			sky.Instance{
				Name: name, Type: "small", Zone: "sky-1a", Region: "sky-1", Address: address,
			},
		)
		node := &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.NodeSpec{
				PodCIDR: fmt.Sprintf("10.128.%d.0/24", n), PodCIDRs: []string{
					fmt.Sprintf("10.128.%d.0/24", n),
				},
				Taints: []v1.Taint{
					{
						Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true",
						Effect: v1.TaintEffectNoSchedule,
					},
				},
			},
		}
		if _, err := w.Client.CoreV1().Nodes().Create(
			ctx, node, metav1.CreateOptions{},
		); err != nil {
			return err
		}
	}
	return nil
}

// NodesInitialized is a condition: every node has the cloud's data and a route.
func (w *Cluster) NodesInitialized(ctx context.Context) error {
	nodes, err := w.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, n := range nodes.Items {
		tainted := slices.ContainsFunc(n.Spec.Taints, func(t v1.Taint) bool {
			return t.Key == cloudproviderapi.TaintExternalCloudProvider
		})
		if n.Spec.ProviderID == "" || tainted {
			return fmt.Errorf("node %s has not been initialized", n.Name)
		}
		if n.Labels[v1.LabelTopologyZone] == "" || len(n.Status.Addresses) == 0 {
			return fmt.Errorf("node %s has no zone or no addresses", n.Name)
		}
	}
	if routes := w.Sky.Routes(); len(routes) != len(nodes.Items) {
		return fmt.Errorf("there are %d routes to %d nodes", len(routes), len(nodes.Items))
	}
	return nil
}

// Settled returns a condition: so many members hold ranges, and their numbers of ranges differ by
// at most one.
func (w *Cluster) Settled(members int) harness.Condition {
	return func(ctx context.Context) error {
		ranges := labels.Set{leaseapi.RingLabel: flotilla.NamespacesRing}.String()
		leases, err := w.Client.CoordinationV1().Leases(metav1.NamespaceSystem).List(
			ctx, metav1.ListOptions{LabelSelector: ranges},
		)
		if err != nil {
			return err
		}
		held := map[string]int{}
		for _, l := range leases.Items {
			held[leaserecord.From(&l).Holder]++
		}
		counts := slices.Sorted(maps.Values(held))
		if len(held) != members || counts[len(counts)-1]-counts[0] > 1 {
			return fmt.Errorf("the ranges are held %v", held)
		}
		return nil
	}
}

// Name is the name of a Service in a namespace.
type Name struct{ Namespace, Service string }

func (n Name) String() string { return n.Namespace + "/" + n.Service }

// Names returns the names of count Services, each in a namespace of its own. The namespaces have a
// random suffix, as generated names do. Names that differ only in their last digits hash close
// together, so they would share few ranges until the planner cuts these by weight.
func Names(prefix string, count int, seed uint64) []Name {
	random := rand.New(rand.NewPCG(seed, seed))
	var names []Name
	for range count {
		names = append(names, Name{fmt.Sprintf("%s-%08x", prefix, random.Uint32()), "web"})
	}
	return names
}

// AddNamespaces creates the namespaces of the names.
func (w *Cluster) AddNamespaces(ctx context.Context, names []Name) error {
	return each(names, func(n Name) error {
		_, err := w.Client.CoreV1().Namespaces().Create(
			ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n.Namespace}},
			metav1.CreateOptions{},
		)
		return err
	})
}

// AddServices creates Services of type LoadBalancer.
func (w *Cluster) AddServices(ctx context.Context, names []Name) error {
	return each(names, func(n Name) error {
		_, err := w.Client.CoreV1().Services(n.Namespace).Create(ctx, &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: n.Service},
			Spec: v1.ServiceSpec{
				Type: v1.ServiceTypeLoadBalancer,
				Ports: []v1.ServicePort{
					{
						Name: "web", Port: port, TargetPort: intstr.FromInt32(port),
						Protocol: v1.ProtocolTCP,
					},
				},
			},
		}, metav1.CreateOptions{})
		return err
	})
}

// Serve listens at the node port of each Service on each node, as kube-proxy does, and answers with
// the Service's name.
func (w *Cluster) Serve(ctx context.Context, names []Name) error {
	return each(names, func(n Name) error {
		service, err := w.Client.CoreV1().Services(n.Namespace).Get(
			ctx, n.Service, metav1.GetOptions{},
		)
		if err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, address := range w.nodes {
			l, err := net.Listen(
				"tcp", net.JoinHostPort(address, fmt.Sprint(service.Spec.Ports[0].NodePort)),
			)
			if err != nil {
				return err
			}
			w.listeners = append(w.listeners, l)
			w.serving.Go(func() { answer(l, n) })
		}
		return nil
	})
}

func answer(l net.Listener, n Name) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = fmt.Fprintln(conn, n)
		_ = conn.Close()
	}
}

// Addressed returns a condition: each Service has an address.
func (w *Cluster) Addressed(names []Name) harness.Condition {
	return func(ctx context.Context) error {
		have, err := w.addresses(ctx)
		if err != nil {
			return err
		}
		missing := 0
		for _, n := range names {
			if have[n] == "" {
				missing++
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d of %d Services have no address", missing, len(names))
		}
		return nil
	}
}

// CountAddressed returns how many of the Services have an address.
func (w *Cluster) CountAddressed(ctx context.Context, names []Name) (int, error) {
	have, err := w.addresses(ctx)
	count := 0
	for _, n := range names {
		if have[n] != "" {
			count++
		}
	}
	return count, err
}

func (w *Cluster) addresses(ctx context.Context) (map[Name]string, error) {
	services, err := w.Client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	have := map[Name]string{}
	for _, s := range services.Items {
		if len(s.Status.LoadBalancer.Ingress) > 0 {
			have[Name{s.Namespace, s.Name}] = s.Status.LoadBalancer.Ingress[0].IP
		}
	}
	return have, nil
}

// Answered connects to the address of each Service and returns an error unless an endpoint of that
// Service answers.
func (w *Cluster) Answered(ctx context.Context, names []Name) error {
	have, err := w.addresses(ctx)
	if err != nil {
		return err
	}
	return each(names, func(n Name) error {
		dialer := net.Dialer{Timeout: answerWithin}
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(have[n], fmt.Sprint(port)))
		if err != nil {
			return fmt.Errorf("the load balancer of %s: %w", n, err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
			return err
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if got := strings.TrimSpace(line); got != n.String() {
			return fmt.Errorf(
				"the load balancer of %s at %s: %q answers, error %w", n, have[n], got, err,
			)
		}
		return nil
	})
}

// DeleteServices deletes Services. A finalizer keeps each until its load balancer is gone.
func (w *Cluster) DeleteServices(ctx context.Context, names []Name) error {
	return each(names, func(n Name) error {
		return w.Client.CoreV1().Services(n.Namespace).Delete(
			ctx, n.Service, metav1.DeleteOptions{},
		)
	})
}

// Gone returns a condition: the Services do not exist.
func (w *Cluster) Gone(names []Name) harness.Condition {
	return func(ctx context.Context) error {
		return each(names, func(n Name) error {
			_, err := w.Client.CoreV1().Services(n.Namespace).Get(
				ctx, n.Service, metav1.GetOptions{},
			)
			switch {
			case err == nil:
				return fmt.Errorf("the Service %s is still there", n)
			case apierrors.IsNotFound(err):
				return nil
			}
			return err
		})
	}
}

// Judge returns what is wrong in the cloud's log; see sky.Judge.
func (w *Cluster) Judge(ctx context.Context) ([]string, error) {
	services, err := w.Client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	alive := map[string]bool{}
	for _, s := range services.Items {
		alive[string(s.UID)] = true
	}
	return sky.Judge(w.Sky.Calls(), func(uid string) bool { return alive[uid] }), nil
}

// each calls f for all names, several at a time, and repeats calls when the API server is busy.
func each(names []Name, f func(Name) error) error {
	queue := make(chan Name)
	errs := make([]error, workers)
	var working sync.WaitGroup
	for i := range workers {
		working.Go(func() {
			for n := range queue {
				if errs[i] == nil {
					errs[i] = retry.OnError(
						retry.DefaultBackoff, apierrors.IsTooManyRequests,
						func() error { return f(n) },
					)
				}
			}
		})
	}
	for _, n := range names {
		queue <- n
	}
	close(queue)
	working.Wait()
	return errors.Join(errs...)
}
