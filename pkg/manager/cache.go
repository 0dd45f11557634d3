package manager

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// shardCache is controller-runtime's cache over the informers of a shard. For objects in namespaces
// that are not the shard's, it asks the API server.
type shardCache struct {
	cache.Cache
	m    *shardManager
	live client.Reader

	scheme     *runtime.Scheme
	mapper     meta.RESTMapper
	codecs     serializer.CodecFactory
	paramCodec runtime.ParameterCodec
	// reading and http are what informers read with. They belong to the process: informers are
	// shared, and may outlive the shard.
	reading *rest.Config
	http    *http.Client
	// options have the selectors that the Manager was given.
	options cache.Options
}

var _ cache.Cache = &shardCache{}

// newCache is a cache.NewCacheFunc.
func (m *shardManager) newCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	c := &shardCache{
		m: m, scheme: options.Scheme, mapper: options.Mapper,
		codecs:     serializer.NewCodecFactory(options.Scheme),
		paramCodec: runtime.NewParameterCodec(options.Scheme),
		reading:    m.shard.Reading(), options: options,
	}
	var err error
	if c.http, err = rest.HTTPClientFor(c.reading); err != nil {
		return nil, fmt.Errorf("creating the HTTP client of informers: %w", err)
	}
	live := client.Options{
		HTTPClient: options.HTTPClient, Scheme: options.Scheme, Mapper: options.Mapper,
	}
	if c.live, err = client.New(config, live); err != nil {
		return nil, fmt.Errorf("creating the client for reads outside the range: %w", err)
	}
	options.NewInformer = c.newInformer
	c.Cache, err = cache.New(config, options)
	return c, err
}

// Get implements client.Reader.
func (c *shardCache) Get(
	ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption,
) error {
	foreign, err := c.isForeign(key, obj)
	if err != nil {
		return err
	}
	if foreign {
		return c.getLive(ctx, key, obj, opts...)
	}
	return c.Cache.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (c *shardCache) List(
	ctx context.Context, list client.ObjectList, opts ...client.ListOption,
) error {
	options := client.ListOptions{}
	options.ApplyOptions(opts)
	if options.Namespace != "" && !c.m.shard.Owns(options.Namespace) {
		return c.listLive(ctx, list, opts...)
	}
	return c.Cache.List(ctx, list, opts...)
}

// getLive asks the API server. It applies the Manager's selectors as a cache would, and leaves obj
// alone if it finds nothing.
func (c *shardCache) getLive(
	ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption,
) error {
	gvk, selection, err := c.selectionFor(obj)
	if err != nil {
		return err
	}
	found := obj.DeepCopyObject().(client.Object)
	if err := c.live.Get(ctx, key, found, opts...); err != nil {
		return err
	}
	if selection.has(found) {
		found.GetObjectKind().SetGroupVersionKind(gvk) // as a cache does
		reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(found).Elem())
		return nil
	}
	mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return err
	}
	return apierrors.NewNotFound(mapping.Resource.GroupResource(), key.Name)
}

// listLive is getLive for lists.
func (c *shardCache) listLive(
	ctx context.Context, list client.ObjectList, opts ...client.ListOption,
) error {
	gvk, selection, err := c.selectionFor(list)
	if err != nil {
		return err
	}
	if err := c.live.List(ctx, list, opts...); err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	for _, item := range items {
		item.GetObjectKind().SetGroupVersionKind(gvk) // as a cache does
	}
	if selection.isAll() {
		return nil
	}
	foreign := func(o runtime.Object) bool { return !selection.has(o) }
	return meta.SetList(list, slices.DeleteFunc(items, foreign))
}

// selectionFor returns the kind of an object, or of the objects in a list, and the Manager's
// selection of that kind.
func (c *shardCache) selectionFor(obj runtime.Object) (schema.GroupVersionKind, selection, error) {
	gvk, err := apiutil.GVKForObject(obj, c.scheme)
	if err != nil {
		return gvk, selection{}, err
	}
	if _, isList := obj.(client.ObjectList); isList {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	s, err := selectionOf(c.options, c.scheme, gvk)
	return gvk, s, err
}

// isForeign reports whether an object cannot be in the cache because it is outside of the shard's
// range.
func (c *shardCache) isForeign(key client.ObjectKey, obj client.Object) (bool, error) {
	if key.Namespace != "" {
		return !c.m.shard.Owns(key.Namespace), nil
	}
	gvk, err := apiutil.GVKForObject(obj, c.scheme)
	if err != nil {
		return false, err
	}
	isNamespace := gvk.GroupKind() == corev1.SchemeGroupVersion.WithKind("Namespace").GroupKind()
	return isNamespace && !c.m.shard.Owns(key.Name), nil
}

// WaitForCacheSync implements cache.Informers.
func (c *shardCache) WaitForCacheSync(ctx context.Context) bool { return c.m.waitFor(ctx, c.Cache) }
