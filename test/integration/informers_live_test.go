package integration

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/test/harness"
)

// patience limits steps that take seconds on an idle machine. After faults, informers back off for
// up to a minute.
const patience = 3 * time.Minute

// often is how often these tests ask: most of their conditions are about caches in the test's own
// process, and some must hold several times in a row.
const often = 20 * time.Millisecond

// eventually fails the test with the last error of check unless that returns nil in time. It can
// also wait in a Cleanup.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	awaitOften(context.WithoutCancel(t.Context()), t, t.Name(), check)
}

func awaitOften(ctx context.Context, t testing.TB, what string, check func() error) {
	t.Helper()
	if _, err := harness.AwaitEvery(ctx, often, patience, what, func(context.Context) error { return check() }); err != nil {
		t.Fatal(err)
	}
}

// unfiltered are client-go's informers, by resource.
type unfiltered map[schema.GroupVersionResource]cache.SharedIndexInformer

func startUnfiltered(t testing.TB, config *rest.Config) unfiltered {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objectMetadata, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	typed := informers.NewSharedInformerFactory(client, 0)
	custom := metadatainformer.NewSharedInformerFactory(objectMetadata, 0)
	all := unfiltered{}
	for _, s := range subjects {
		if s.custom {
			all[s.gvr] = custom.ForResource(s.gvr).Informer()
			continue
		}
		i, err := typed.ForResource(s.gvr)
		if err != nil {
			t.Fatal(err)
		}
		all[s.gvr] = i.Informer()
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	typed.StartWithContext(ctx)
	custom.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		typed.Shutdown()
		custom.Shutdown()
	})
	return all
}

// live returns the API server's content of a resource.
func live(ctx context.Context, client metadata.Interface, gvr schema.GroupVersionResource) (content, error) {
	list, err := client.Resource(gvr).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var objects []any
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		objects = append(objects, obj)
		return nil
	})
	return contentOf(objects), err
}
