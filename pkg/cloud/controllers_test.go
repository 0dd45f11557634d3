package cloud

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// scopes is an adder that remembers whether controllers are namespaced.
type scopes map[string]bool

func (s scopes) Namespaced(name string, _ flotilla.Build) { s[name] = true }
func (s scopes) Singleton(name string, _ flotilla.Build)  { s[name] = false }

func TestWhichControllersAreNamespaced(t *testing.T) {
	for _, undivided := range []bool{false, true} {
		constructors := maps.Clone(app.DefaultInitFuncConstructors)
		constructors["backup"] = app.ControllerInitFuncConstructor{}
		got := scopes{}
		c := &config.Config{}
		c.ComponentConfig.Generic.Controllers = []string{"*"}
		if _, err := add(t.Context(), got, Controllers{
			Config: c.Complete(), Cloud: parts{}, Constructors: constructors,
			Namespaced: []string{"backup"}, UndividedServices: undivided,
		}); err != nil {
			t.Fatal(err)
		}
		want := scopes{
			names.CloudNodeController: false, names.CloudNodeLifecycleController: false,
			names.NodeRouteController: false, names.ServiceLBController: !undivided, "backup": true,
		}
		if !maps.Equal(got, want) {
			t.Errorf("undivided %t: namespaced are %v, want %v", undivided, got, want)
		}
	}
}

// initializing is a cloud that waits in Initialize, and asks for Nodes.
type initializing struct {
	parts
	waits func()
	nodes informers.SharedInformerFactory
}

func (i *initializing) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {
	i.waits()
}

func (i *initializing) SetInformers(factory informers.SharedInformerFactory) {
	i.nodes = factory
	factory.Core().V1().Nodes().Informer()
}

// managerOf returns a manager of the cloud, and what lets the API server answer lists of Nodes.
func managerOf(t *testing.T, cloud cloudprovider.Interface) (m *manager, answer func()) {
	t.Helper()
	client := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
	answered := make(chan struct{})
	client.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		<-answered
		return false, nil, nil
	})
	c := &config.Config{SharedInformers: informers.NewSharedInformerFactory(client, 0)}
	answer = sync.OnceFunc(func() { close(answered) })
	ctx, end := context.WithCancel(t.Context())
	t.Cleanup(func() {
		answer()
		end()
		c.SharedInformers.Shutdown()
	})
	return newManager(ctx, Controllers{Config: c.Complete(), Cloud: cloud}), answer
}

// TestInitializingWaitsForTheProvidersInformers checks that initializeCloud, after which
// controllers begin, returns only once the informers that the provider asks for are full.
func TestInitializingWaitsForTheProvidersInformers(t *testing.T) {
	cloud := &initializing{waits: func() {}}
	m, answer := managerOf(t, cloud)
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the shard is gone")
	first := make(chan error, 1)
	go func() { first <- m.initializeCloud(ctx) }()
	cancel(gone)
	if err := <-first; !errors.Is(err, gone) {
		t.Errorf("with empty informers, and without the shard: %v, want its end", err)
	}
	if types := unfilled(m.Config.SharedInformers); !slices.Equal(types, []string{"*v1.Node"}) {
		t.Errorf("not full are %q, want Nodes", types)
	}
	second := make(chan error, 1)
	go func() { second <- m.initializeCloud(t.Context()) }()
	answer()
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	if _, err := cloud.nodes.Core().V1().Nodes().Lister().Get("node-1"); err != nil {
		t.Errorf("a controller begins, and the provider does not know the node: %v", err)
	}
}

// TestAMemberIsNotReadyBeforeTheCloudIs has a cloud that takes 40 seconds to initialize.
func TestAMemberIsNotReadyBeforeTheCloudIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &config.Config{
			SharedInformers: informers.NewSharedInformerFactory(fake.NewClientset(), 0),
		}
		cloud := &initializing{waits: func() { time.Sleep(40 * time.Second) }} // virtual
		m := newManager(t.Context(), Controllers{
			Config: c.Complete(), Cloud: uninformed{cloud},
		})
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx := klog.NewContext(t.Context(), logger)
		said := func() bool {
			text := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			return strings.Contains(text, "Waiting for the provider's Initialize")
		}
		fleet := errors.New("member m has not joined the fleet")
		ready := func(when string, runs, want bool) {
			t.Helper()
			if err := m.ready(fleet, runs); (err == nil) != want {
				t.Errorf("%s: %v, want ready: %t", when, err, want)
			}
		}
		ready("a member without a shard", false, true)
		ready("a member whose controllers have not asked for the cloud", true, false)
		var starting sync.WaitGroup
		starting.Go(func() {
			if err := m.initializeCloud(ctx); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(slow - 1) // virtual
		ready("during Initialize", true, false)
		if said() {
			t.Error("the log has it too early")
		}
		time.Sleep(2 * time.Nanosecond) // virtual
		synctest.Wait()
		if !said() {
			t.Error("the log does not say that Initialize takes long")
		}
		starting.Wait()
		ready("afterwards", true, true)
	})
}

// TestAReadyMemberStaysReadyWhileTheCloudBegins has a member that was ready without a shard, and
// whose cloud never begins.
func TestAReadyMemberStaysReadyWhileTheCloudBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t.Context(), Controllers{Config: (&config.Config{}).Complete()})
		require := func(when string, runs, want bool) {
			t.Helper()
			if err := m.ready(nil, runs); (err == nil) != want {
				t.Errorf("%s: %v, want ready: %t", when, err, want)
			}
		}
		require("without a shard", false, true)
		require("with its first", true, true)
		time.Sleep(patience - 1) // virtual
		require("after some minutes", true, true)
		require("without a shard again", false, true)
		require("with another", true, true)
		time.Sleep(patience) // virtual
		require("after five minutes", true, false)
	})
}

// uninformed hides SetInformers.
type uninformed struct{ cloudprovider.Interface }
