package manager

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/flotilla-kube/flotilla/pkg/informer"
)

// reads returns an example of obj's kind and form, and a reader of all such objects.
func (c *shardCache) reads(
	obj runtime.Object, gvk schema.GroupVersionKind, gvr schema.GroupVersionResource,
) (example runtime.Object, reads toolscache.ListerWatcher, err error) {
	switch obj.(type) {
	case runtime.Unstructured:
		client, err := dynamic.NewForConfigAndClient(c.reading, c.http)
		if err != nil {
			return nil, nil, err
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		resource := client.Resource(gvr)
		return u, &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return resource.List(ctx, o)
			},
			WatchFuncWithContext: resource.Watch,
		}, nil
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		client, err := metadata.NewForConfigAndClient(c.reading, c.http)
		if err != nil {
			return nil, nil, err
		}
		return &metav1.PartialObjectMetadata{}, metadataOf(client.Resource(gvr), gvk), nil
	default:
		example, reads, err := c.typed(gvk, gvr)
		return example, reads, err
	}
}

// typed reads objects of the scheme's type.
func (c *shardCache) typed(gvk schema.GroupVersionKind, gvr schema.GroupVersionResource) (runtime.Object, toolscache.ListerWatcher, error) {
	example, err := c.scheme.New(gvk)
	if err != nil {
		return nil, nil, err
	}
	list, err := c.scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return nil, nil, err
	}
	client, err := apiutil.RESTClientForGVK(gvk, false, false, c.reading, c.codecs, c.http)
	if err != nil {
		return nil, nil, err
	}
	return example, &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			into := list.DeepCopyObject()
			err := client.Get().Resource(gvr.Resource).VersionedParams(&o, c.paramCodec).Do(ctx).Into(into)
			return into, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			return client.Get().Resource(gvr.Resource).VersionedParams(&o, c.paramCodec).Watch(ctx)
		},
	}, nil
}

// metadataOf reads metadata and sets each object's kind, as controller-runtime's informers do: the
// API server's answers lack it.
func metadataOf(resource metadata.Getter, gvk schema.GroupVersionKind) toolscache.ListerWatcher {
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := resource.List(ctx, o)
			if err != nil {
				return nil, err
			}
			for i := range list.Items {
				list.Items[i].SetGroupVersionKind(gvk)
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := resource.Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			return informer.FilterWatch(w, func(obj any) (any, bool) {
				if m, ok := obj.(*metav1.PartialObjectMetadata); ok {
					m.SetGroupVersionKind(gvk)
				}
				return obj, true
			}), nil
		},
	}
}
