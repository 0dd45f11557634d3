package garbage

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	svmv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/fake"
	svmlisters "k8s.io/client-go/listers/storagemigration/v1"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

func TestMain(m *testing.M) {
	// The default ones limit their rate by a clock that all bubbles of virtual time would share.
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// answer is discovery with one answer.
type answer struct {
	discovery.ServerResourcesInterface
	lists []*metav1.APIResourceList
	err   error
}

func (a answer) ServerPreferredResources() ([]*metav1.APIResourceList, error) { return a.lists, a.err }

// TestDiscoveryOfMigrated checks what the migrator's monitors are told exists. Upstream changes
// nothing if that is empty, and otherwise ends the monitors of all that is missing.
func TestDiscoveryOfMigrated(t *testing.T) {
	verbs := metav1.Verbs{"delete", "list", "watch"}
	all := []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Verbs: verbs}, {Name: "secrets", Kind: "Secret", Verbs: verbs},
	}}}
	for name, tc := range map[string]struct {
		pending bool
		answer  answer
		want    string
	}{
		"nothing is migrated":      {false, answer{lists: all}, "storageversionmigrations"},
		"a migration":              {true, answer{lists: all}, "configmaps storageversionmigrations"},
		"some groups do not reply": {true, answer{lists: all, err: &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{{Group: "x"}: errors.New("away")}}}, "configmaps storageversionmigrations"},
		"no reply":                 {true, answer{err: errors.New("connection refused")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			migrations := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
			if tc.pending {
				err := migrations.Add(&svmv1.StorageVersionMigration{
					ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: svmv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Resource: "configmaps"}},
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			m := migrated{tc.answer, svmlisters.NewStorageVersionMigrationLister(migrations)}
			found, err := garbagecollector.GetDeletableResources(t.Context(), discovery.ToServerResourcesInterfaceWithContext(m))
			var got []string
			for resource := range found {
				got = append(got, resource.Resource)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != tc.want || !errors.Is(err, tc.answer.err) {
				t.Errorf("%q, %v; want %q, %v", got, err, tc.want, tc.answer.err)
			}
		})
	}
}

// resettable is a mapper that knows all there is.
type resettable struct{ meta.RESTMapper }

// Reset implements meta.ResettableRESTMapper.
func (resettable) Reset() {}

// TestMigratorWaitsForMonitors checks that the migrator does not find the monitor of a migration
// empty that began before its shard moved: it would fail it for good.
func TestMigratorWaitsForMonitors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(v1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
		mapper.Add(migrations.GroupVersion().WithKind("StorageVersionMigration"), meta.RESTScopeRoot)
		scheme := metadatafake.NewTestScheme()
		if err := metav1.AddMetaToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		var listed, readable, migrates atomic.Bool
		client := metadatafake.NewSimpleMetadataClient(scheme)
		client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !readable.Load(), nil, errors.New("busy")
		})
		client.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
			return a.(clienttesting.WatchActionImpl).ListOptions.SendInitialEvents != nil, nil, errors.New("no lists in the form of watches")
		})
		run := func() (end func()) {
			monitors, err := NewMonitors(t.Context(), MonitorsConfig{
				Client: fake.NewClientset(), Metadata: client, Mapper: resettable{mapper}, Migrations: svmlisters.NewStorageVersionMigrationLister(begun), Listed: listed.Load,
				Discovery: answer{lists: []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
					{Name: "configmaps", Kind: "ConfigMap", Verbs: metav1.Verbs{"delete", "list", "watch"}},
				}}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			migrates.Store(false)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { monitors.Run(ctx, func(ctx context.Context) { migrates.Store(true); <-ctx.Done() }) })
			return func() { cancel(); running.Wait() }
		}
		after := func(d time.Duration, what string, want bool) {
			t.Helper()
			time.Sleep(d) // virtual
			if got := migrates.Load(); got != want {
				t.Errorf("%s: migrates: %t, want %t", what, got, want)
			}
		}

		end := run()
		after(time.Minute, "migrations have not been listed", false)
		err := begun.Add(&svmv1.StorageVersionMigration{
			ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: svmv1.StorageVersionMigrationSpec{Resource: metav1.GroupResource{Resource: "configmaps"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		listed.Store(true)
		after(time.Minute, "config maps have not been listed", false)
		readable.Store(true)
		after(time.Minute, "everything has been listed", true)
		end()

		readable.Store(false)
		end = run()
		after(9*time.Minute, "config maps cannot be listed", false)
		after(2*time.Minute, "config maps could not be listed for long", true)
		end()

		listed.Store(false)
		end = run()
		end()
		if !migrates.Load() {
			t.Error("a migrator that was not run keeps what it was made with")
		}
	})
}
