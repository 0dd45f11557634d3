package manager

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// foreignReads is a client that reads each object as one outside the range.
type foreignReads struct {
	client.Client
	cache *shardCache
}

func (c foreignReads) Get(
	ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption,
) error {
	return c.cache.getLive(ctx, key, obj, opts...)
}

// TestReadsOutsideLeaveWhatIsNotSelectedAlone tests the idiom of reconcilers that go on with the
// object that they read into, whether it was found or not.
func TestReadsOutsideLeaveWhatIsNotSelectedAlone(t *testing.T) {
	server := fake.NewClientBuilder().WithScheme(scheme.Scheme).
		WithObjects(labelled("a", "web"), labelled("b", "other")).Build()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	web := labels.SelectorFromSet(labels.Set{"app": "web"})
	c := foreignReads{server, &shardCache{
		live: server, scheme: scheme.Scheme, mapper: mapper,
		options: cache.Options{DefaultLabelSelector: web},
	}}
	for name, want := range map[string]func(error) bool{
		"a": func(err error) bool { return err == nil },
		"b": apierrors.IsAlreadyExists,
	} {
		meta := metav1.ObjectMeta{Namespace: "shop", Name: name}
		s := &corev1.Secret{ObjectMeta: meta}
		_, err := controllerutil.CreateOrUpdate(t.Context(), c, s, func() error {
			if found := s.Labels["app"] == "web"; found != (name == "a") {
				t.Errorf("%s is read as %v", name, s)
			}
			s.Data = map[string][]byte{"a": []byte("b")}
			return nil
		})
		if !want(err) {
			t.Errorf("CreateOrUpdate of %s: %v", name, err)
		}
	}
}
