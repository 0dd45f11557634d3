package informer

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// kind is what a factory must know about a built-in type to list and watch it.
type kind struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Type is the Go type of one object, a pointer to a struct.
	Type     reflect.Type
	listType reflect.Type
}

func (k kind) newObject() runtime.Object {
	return reflect.New(k.Type.Elem()).Interface().(runtime.Object)
}

func (k kind) newList() runtime.Object {
	return reflect.New(k.listType.Elem()).Interface().(runtime.Object)
}

// kinds is the table of all types that a clientset serves.
type kinds struct {
	byType     map[reflect.Type]kind
	byResource map[schema.GroupVersionResource]kind
	clients    map[schema.GroupVersion]rest.Interface
}

// newKinds reads the table off the clientset's own method sets, so that no list of types has to be
// maintained: the method Pods(namespace string) of CoreV1() shows that pods are namespaced, and its
// Get and List name the types.
func newKinds(client kubernetes.Interface) (*kinds, error) {
	k := &kinds{
		byType:     map[reflect.Type]kind{},
		byResource: map[schema.GroupVersionResource]kind{},
		clients:    map[schema.GroupVersion]rest.Interface{},
	}
	set := reflect.ValueOf(client)
	for i := range set.NumMethod() {
		method := set.Method(i)
		if method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
			continue
		}
		group, ok := method.Call(nil)[0].Interface().(interface{ RESTClient() rest.Interface })
		if !ok || group.RESTClient() == nil || isNil(group.RESTClient()) {
			continue
		}
		gv := group.RESTClient().APIVersion()
		if _, known := k.clients[gv]; known {
			continue
		}
		k.clients[gv] = group.RESTClient()
		// Use the interface's methods: the struct behind it may have others.
		k.addGroup(gv, method.Type().Out(0))
	}
	if len(k.byType) == 0 {
		return nil, fmt.Errorf("clientset %T offers no resources to watch", client)
	}
	return k, nil
}

func isNil(c rest.Interface) bool {
	v := reflect.ValueOf(c)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

func (k *kinds) addGroup(gv schema.GroupVersion, group reflect.Type) {
	for i := range group.NumMethod() {
		getter := group.Method(i)
		if getter.Type.NumOut() != 1 || getter.Name == "RESTClient" {
			continue
		}
		namespaced := getter.Type.NumIn() == 1 && getter.Type.In(0).Kind() == reflect.String
		if !namespaced && getter.Type.NumIn() != 0 {
			continue
		}
		resource := getter.Type.Out(0)
		get, canGet := resource.MethodByName("Get")
		list, canList := resource.MethodByName("List")
		_, canWatch := resource.MethodByName("Watch")
		if !canGet || !canList || !canWatch {
			continue
		}
		entry := kind{
			Resource:   gv.WithResource(strings.ToLower(getter.Name)),
			Namespaced: namespaced,
			Type:       get.Type.Out(0),
			listType:   list.Type.Out(0),
		}
		k.byType[entry.Type] = entry
		k.byResource[entry.Resource] = entry
	}
}

// typed returns how to read objects of kind e.
func (k *kinds) typed(e kind) reader {
	return typedResource{client: k.clients[e.Resource.GroupVersion()], kind: e}
}
