package main

import (
	"context"
	"fmt"
	"html"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// pages is the resource that the controller reconciles.
var pages = schema.GroupVersionResource{Group: "example.flotilla.dev", Version: "v1", Resource: "pages"}

// pageController keeps a ConfigMap with the HTML of each Page. It is an ordinary client-go
// controller, and knows nothing of Flotilla.
type pageController struct {
	client     kubernetes.Interface
	pages      cache.GenericLister
	configMaps corelisters.ConfigMapLister
	synced     []cache.InformerSynced
	queue      workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

func newPageController(
	client kubernetes.Interface, pages informers.GenericInformer, configMaps coreinformers.ConfigMapInformer,
) (*pageController, error) {
	c := &pageController{
		client: client, pages: pages.Lister(), configMaps: configMaps.Lister(),
		synced: []cache.InformerSynced{pages.Informer().HasSynced, configMaps.Informer().HasSynced},
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		DeleteFunc: c.enqueue,
	}
	for _, informer := range []cache.SharedIndexInformer{pages.Informer(), configMaps.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// enqueue takes a Page or its ConfigMap, which has the same name.
func (c *pageController) enqueue(obj any) {
	if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		c.queue.Add(name)
	}
}

// Close is called instead of Run if the controller is abandoned before it runs.
func (c *pageController) Close() { c.queue.ShutDown() }

// Run works until ctx ends, and returns once all workers have returned.
func (c *pageController) Run(ctx context.Context) error {
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return nil // ctx has ended.
	}
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() { wait.UntilWithContext(ctx, c.work, 0) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	workers.Wait()
	return nil
}

func (c *pageController) work(ctx context.Context) {
	for ctx.Err() == nil {
		name, shutdown := c.queue.Get()
		if shutdown {
			return
		}
		if err := c.sync(ctx, name); err != nil {
			klog.FromContext(ctx).Error(err, "Could not make the page, trying again", "page", name)
			c.queue.AddRateLimited(name)
		} else {
			c.queue.Forget(name)
		}
		c.queue.Done(name)
	}
}

// sync makes the ConfigMap of one Page match the Page.
func (c *pageController) sync(ctx context.Context, name cache.ObjectName) error {
	obj, err := c.pages.ByNamespace(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil // The garbage collector deletes its ConfigMap.
	} else if err != nil {
		return err
	}
	page := obj.(*unstructured.Unstructured)
	text, _, err := unstructured.NestedString(page.Object, "spec", "text")
	if err != nil {
		return err
	}
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: name.Name, Namespace: name.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(page, page.GroupVersionKind())},
		},
		Data: map[string]string{"index.html": fmt.Sprintf("<p>%s</p>", html.EscapeString(text))},
	}
	have, err := c.configMaps.ConfigMaps(name.Namespace).Get(name.Name)
	switch {
	case apierrors.IsNotFound(err):
		_, err = c.client.CoreV1().ConfigMaps(name.Namespace).Create(ctx, want, metav1.CreateOptions{})
		return err
	case err != nil:
		return err
	case !metav1.IsControlledBy(have, page):
		return fmt.Errorf("there is a ConfigMap of that name which is not the page's")
	case have.Data["index.html"] == want.Data["index.html"]:
		return nil
	}
	changed := have.DeepCopy()
	changed.Data = want.Data
	_, err = c.client.CoreV1().ConfigMaps(name.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
	return err
}
