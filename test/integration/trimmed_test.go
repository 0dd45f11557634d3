package integration

import (
	"net/http"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	trimmed "github.com/flotilla-kube/flotilla/pkg/controllers/wire"
)

// TestWatchesLackFields reads watches of this API server without some fields: streamed lists, the
// bookmark that ends them, changes and deletions, whole and as metadata.
func TestWatchesLackFields(t *testing.T) {
	const namespace, name = metav1.NamespaceDefault, "lacks-fields"
	config := rest.CopyConfig(plane.AdminConfig())
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	plain := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(namespace)
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return trimmed.Drop(next, func(n protowire.Number) bool { return n == 11 || n == 17 }) // labels and managed fields
	})
	typed := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(namespace)
	untyped := metadata.NewForConfigOrDie(config).Resource(v1.SchemeGroupVersion.WithResource("configmaps")).Namespace(namespace)

	ctx := t.Context()
	object := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"l": "l"}, Annotations: map[string]string{"a": "a"}, Finalizers: []string{"example.com/f"},
	}, Data: map[string]string{"k": "v"}}
	created, err := plain.Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(created.ManagedFields) == 0 {
		t.Fatal("the API server has recorded no managed fields")
	}
	streamed := metav1.ListOptions{
		SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		FieldSelector: "metadata.name=" + name,
	}
	whole, err := typed.Watch(ctx, streamed)
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Stop()
	partial, err := untyped.Watch(ctx, streamed)
	if err != nil {
		t.Fatal(err)
	}
	defer partial.Stop()
	expect := func(kind watch.EventType, want *v1.ConfigMap) {
		t.Helper()
		want = want.DeepCopy()
		want.Labels, want.ManagedFields = nil, nil
		for _, from := range []watch.Interface{whole, partial} {
			event := next(t, from)
			var diff string
			switch got := event.Object.(type) {
			case *v1.ConfigMap:
				diff = gocmp.Diff(want, got)
			case *metav1.PartialObjectMetadata:
				diff = gocmp.Diff(want.ObjectMeta, got.ObjectMeta)
			}
			if event.Type != kind || diff != "" {
				t.Fatalf("%s of %T, want %s (-want +got):\n%s", event.Type, event.Object, kind, diff)
			}
		}
	}
	expect(watch.Added, created)
	for _, from := range []watch.Interface{whole, partial} {
		event := next(t, from)
		end := event.Object.(metav1.ObjectMetaAccessor).GetObjectMeta().GetAnnotations()[metav1.InitialEventsAnnotationKey]
		if event.Type != watch.Bookmark || end != "true" {
			t.Fatalf("the list ends with a %s, %v", event.Type, event.Object)
		}
	}
	created.Data["k"], created.Finalizers = "w", nil
	changed, err := plain.Update(ctx, created, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect(watch.Modified, changed)
	if err := plain.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, from := range []watch.Interface{whole, partial} {
		event := next(t, from)
		gone := event.Object.(metav1.ObjectMetaAccessor).GetObjectMeta()
		if event.Type != watch.Deleted || gone.GetUID() != created.UID || gone.GetLabels() != nil || gone.GetManagedFields() != nil {
			t.Fatalf("the deletion is a %s, %v", event.Type, event.Object)
		}
	}
}

// next returns the next event of a watch.
func next(t *testing.T, from watch.Interface) watch.Event {
	t.Helper()
	select {
	case event, open := <-from.ResultChan():
		if !open {
			t.Fatal("the watch has ended")
		}
		return event
	case <-t.Context().Done():
		t.Fatal("no event")
	}
	return watch.Event{}
}
