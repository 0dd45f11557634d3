package garbage

import (
	"errors"
	"slices"
	"strings"
	"testing"

	svmv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	svmlisters "k8s.io/client-go/listers/storagemigration/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

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
