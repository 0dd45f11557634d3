package catalogue

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

// A row has the clients that upstream's constructor asks for, with the factors that it applies to
// their limits.
func TestClientsAreUpstreams(t *testing.T) {
	w := newFixture(t)
	for _, row := range All() {
		t.Run(row.Name, func(t *testing.T) {
			if slices.Contains(row.Needs, NeedRootClient) {
				if !app.NewControllerDescriptors()[row.Name].RequiresSpecialHandling() {
					t.Fatal("upstream builds it like any other controller: remove NeedRootClient")
				}
				return // Its constructor has no client builder to ask.
			}
			asked, err := w.build(t, w.context(t), row.Name)
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Clone(row.Clients)
			for i := range want {
				want[i].Busy = 0          // What upstream builds from a config, the builder does not see.
				if want[i].Via == ViaCA { // A config that nothing is built from.
					want[i].Via = ViaConfig
				}
			}
			order := func(a, b Client) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Via, b.Via)) }
			slices.SortFunc(want, order)
			slices.SortFunc(asked, order)
			if diff := gocmp.Diff(want, asked); diff != "" {
				t.Errorf("Clients of the row (-) and of upstream's constructor (+):\n%s", diff)
			}
		})
	}
}

// TestInstancesInOneProcess checks that several instances of every controller can be built in one
// process, each on its own informers. A member that runs several shards does this, and so does
// every handoff. On the informers of an earlier instance, some cannot be built.
func TestInstancesInOneProcess(t *testing.T) {
	w := newFixture(t)
	var conflicts []string
	for _, row := range All() {
		if slices.Contains(row.Needs, NeedRootClient) {
			continue
		}
		first := w.context(t)
		for i, c := range []app.ControllerContext{first, w.context(t)} {
			if _, err := w.build(t, c, row.Name); err != nil {
				t.Errorf("%s: instance %d: %v", row.Name, i+1, err)
			}
		}
		if _, err := w.build(t, first, row.Name); err != nil {
			if !strings.Contains(err.Error(), "indexer conflict") {
				t.Errorf("%s: again on the same informers: %v", row.Name, err)
			}
			conflicts = append(conflicts, row.Name)
		}
	}
	want := []string{
		names.CronJobController, names.PodGroupProtectionController, names.ResourceClaimController,
		// Only this one has its index on an informer of cluster-scoped objects, which shards may
		// share: see its RestartHazards.
		names.VolumeAttributesClassProtectionController,
	}
	slices.Sort(want)
	if diff := gocmp.Diff(want, conflicts); diff != "" {
		t.Errorf("Controllers that cannot be built twice on the same informers (-want +got):\n%s\n"+
			"For a new one, see whether the informer is of cluster-scoped objects: then its row needs RestartHazards.", diff)
	}
}

// Constructors do not write, so a shard can be built before its claim is held. A row says what they
// read live.
func TestBuildingOnlyReads(t *testing.T) {
	w := newFixture(t)
	for _, row := range All() {
		if slices.Contains(row.Needs, NeedRootClient) {
			continue
		}
		w.requests.take()
		if _, err := w.build(t, w.context(t), row.Name); err != nil {
			t.Errorf("%s: %v", row.Name, err)
		}
		live := w.requests.take()
		for _, request := range live {
			if !strings.HasPrefix(request, http.MethodGet) {
				t.Errorf("%s: its constructor writes: %s", row.Name, request)
			}
		}
		if len(live) > 0 && row.BuildHazards == "" {
			t.Errorf("%s: its constructor asks the server, but the row has no BuildHazards: %v", row.Name, live)
		}
		if snapshot := slices.ContainsFunc(live, isList); snapshot != row.BuildAfterClaim {
			t.Errorf("%s: its constructor lists objects: %v, but BuildAfterClaim is %v. Requests: %v",
				row.Name, snapshot, row.BuildAfterClaim, live)
		}
	}
}

// isList reports whether a request lists objects rather than the server's resources.
func isList(request string) bool {
	path := strings.TrimPrefix(request, "GET ")
	return strings.HasPrefix(path, "/api/v1/") || strings.HasPrefix(path, "/apis/") && strings.Count(path, "/") > 3
}

// fixture is an API server that answers constructors, and a configuration that enables every
// controller.
type fixture struct {
	config   Config
	ca       []byte
	server   *httptest.Server
	requests *requests
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	for gate, on := range map[string]bool{"GenericWorkload": true, "DRAResourcePoolStatus": true, "StorageVersionAPI": true} {
		for feature := range utilfeature.DefaultMutableFeatureGate.GetAll() {
			if string(feature) == gate {
				featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, feature, on)
			}
		}
	}
	w := &fixture{requests: &requests{}}
	w.server = httptest.NewServer(w.requests)
	t.Cleanup(w.server.Close)

	c, err := options.NewDefaultComponentConfig()
	if err != nil {
		t.Fatal(err)
	}
	c.KubeCloudShared.AllocateNodeCIDRs = true
	c.KubeCloudShared.ClusterCIDR = "10.0.0.0/16"
	c.KubeCloudShared.CIDRAllocatorType = "RangeAllocator"
	c.PersistentVolumeBinderController.VolumeConfiguration.FlexVolumePluginDir = t.TempDir()
	c.CSRSigningController.ClusterSigningCertFile, c.CSRSigningController.ClusterSigningKeyFile = signingFiles(t)
	if w.ca, err = os.ReadFile(c.CSRSigningController.ClusterSigningCertFile); err != nil {
		t.Fatal(err)
	}
	w.config = c
	return w
}

// context returns a context like that of upstream's CreateControllerContext, with its own
// informers, which are never started.
func (w *fixture) context(t *testing.T) app.ControllerContext {
	t.Helper()
	config := &rest.Config{Host: w.server.URL}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	typed := informers.NewSharedInformerFactory(clients, 0)
	c := app.ControllerContext{
		InformerFactory: typed,
		ObjectOrMetadataInformerFactory: informerfactory.NewInformerFactory(typed,
			metadatainformer.NewSharedInformerFactory(metadataClient, 0)),
		ComponentConfig:          w.config,
		RESTMapper:               restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(clients.Discovery())),
		InformersStarted:         make(chan struct{}),
		ResyncPeriod:             func() time.Duration { return 0 },
		ControllerManagerMetrics: controllersmetrics.NewControllerManagerMetrics("test"),
	}
	c.GraphBuilder = garbagecollector.NewDependencyGraphBuilder(t.Context(), metadataClient, c.RESTMapper,
		garbagecollector.DefaultIgnoredResources(), c.ObjectOrMetadataInformerFactory, c.InformersStarted)
	return c
}

// build builds the controller and returns the clients that its constructor asked for.
func (w *fixture) build(t *testing.T, c app.ControllerContext, name string) ([]Client, error) {
	t.Helper()
	clients := &recorder{host: w.server.URL, ca: w.ca}
	c.ClientBuilder = clients
	descriptor, ok := app.NewControllerDescriptors()[name]
	if !ok {
		return nil, fmt.Errorf("upstream has no such controller")
	}
	controller, err := descriptor.BuildController(t.Context(), c)
	if err != nil {
		return nil, err
	}
	if controller == nil {
		return nil, fmt.Errorf("upstream has it switched off: switch it on in newFixture")
	}
	return clients.asked(), nil
}

// recorder is a client builder that records the clients that it was asked for, and their configs,
// which constructors change. From its limits the factors can be read off.
type recorder struct {
	host    string
	ca      []byte
	clients []Client
	configs []*rest.Config
}

const unit = 1000 // Any number: limits are multiples of it.

func (r *recorder) give(name string, via Via) *rest.Config {
	config := &rest.Config{Host: r.host, QPS: unit, Burst: unit}
	config.CAData = r.ca
	r.clients = append(r.clients, Client{Name: name, Via: via})
	r.configs = append(r.configs, config)
	return config
}

func (r *recorder) asked() []Client {
	for i, config := range r.configs {
		r.clients[i].QPS, r.clients[i].Burst = int(config.QPS)/unit, config.Burst/unit
	}
	return r.clients
}

func (r *recorder) Config(name string) (*rest.Config, error) { return r.give(name, ViaConfig), nil }
func (r *recorder) ConfigOrDie(name string) *rest.Config     { return r.give(name, ViaConfig) }
func (r *recorder) Client(name string) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(r.give(name, ViaClient))
}
func (r *recorder) ClientOrDie(name string) kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(r.give(name, ViaClient))
}
func (r *recorder) DiscoveryClient(name string) (clientdiscovery.DiscoveryInterface, error) {
	return kubernetes.NewForConfig(r.give(name, ViaDiscovery))
}
func (r *recorder) DiscoveryClientOrDie(name string) clientdiscovery.DiscoveryInterface {
	return kubernetes.NewForConfigOrDie(r.give(name, ViaDiscovery))
}

// requests answers the requests of constructors and records them.
type requests struct {
	mutex sync.Mutex
	seen  []string
}

func (r *requests) ServeHTTP(out http.ResponseWriter, in *http.Request) {
	r.mutex.Lock()
	r.seen = append(r.seen, in.Method+" "+in.URL.Path)
	r.mutex.Unlock()
	body, ok := map[string]string{
		"/api":  `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis": `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`,
		"/api/v1": `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","namespaced":true,"kind":"Pod",
			"verbs":["create","delete","deletecollection","get","list","patch","update","watch"]}]}`,
		"/api/v1/nodes": `{"kind":"NodeList","apiVersion":"v1","items":[]}`,
		"/apis/certificates.k8s.io/v1": `{"kind":"APIResourceList","groupVersion":"certificates.k8s.io/v1",
			"resources":[{"name":"clustertrustbundles","kind":"ClusterTrustBundle","verbs":["get","list","watch"]}]}`,
	}[in.URL.Path]
	if !ok {
		http.NotFound(out, in)
		return
	}
	out.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprint(out, body)
}

// take returns the requests since the last call.
func (r *requests) take() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	seen := r.seen
	r.seen = nil
	return seen
}

func signingFiles(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := certutil.NewSelfSignedCACert(certutil.Config{CommonName: "test"}, private)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, err := certutil.EncodeCertificates(authority)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(t.TempDir(), "ca.crt"), filepath.Join(t.TempDir(), "ca.key")
	for file, content := range map[string][]byte{cert: certPEM, key: keyPEM} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
