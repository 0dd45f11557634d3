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

// TestReadsOutsideSayTheKind checks that an object read outside the range names its kind, as one
// from the cache does.
func TestReadsOutsideSayTheKind(t *testing.T) {
	server := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(labelled("a", "web")).Build()
	c := &shardCache{live: server, scheme: scheme.Scheme}
	var s corev1.Secret
	if err := c.getLive(t.Context(), client.ObjectKey{Namespace: "shop", Name: "a"}, &s); err != nil {
		t.Fatal(err)
	}
	var list corev1.SecretList
	if err := c.listLive(t.Context(), &list); err != nil || len(list.Items) != 1 {
		t.Fatalf("%v, error %v", list.Items, err)
	}
	for what, got := range map[string]string{"Get": s.Kind + " " + s.APIVersion, "List": list.Items[0].Kind + " " + list.Items[0].APIVersion} {
		if got != "Secret v1" {
			t.Errorf("%s: kind and version are %q", what, got)
		}
	}
}

// TestCacheOptionsAreNotShared checks that a shard's client does not get another shard's cache.
func TestCacheOptionsAreNotShared(t *testing.T) {
	given := &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}
	own := unshared(given)
	own.Reader = foreignReads{}
	if given.Reader != nil || len(own.DisableFor) != 1 || unshared(nil) != nil {
		t.Errorf("given %+v, own %+v", given, own)
	}
}
