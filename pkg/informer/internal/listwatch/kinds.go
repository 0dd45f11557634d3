package listwatch

import (
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Kind is what a factory must know about a built-in type to list and watch it.
type Kind struct {
	// Resource is where objects are listed, and Namespaced says whether they are in namespaces.
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Type is the Go type of one object, a pointer to a struct.
	Type     reflect.Type
	listType reflect.Type
}

// NewObject returns an empty object.
func (k Kind) NewObject() runtime.Object {
	return reflect.New(k.Type.Elem()).Interface().(runtime.Object)
}

func (k Kind) newList() runtime.Object {
	return reflect.New(k.listType.Elem()).Interface().(runtime.Object)
}

// Kinds is the table of all types that a clientset serves.
type Kinds struct {
	// ByType and ByResource must not be changed.
	ByType     map[reflect.Type]Kind
	ByResource map[schema.GroupVersionResource]Kind
	clients    map[schema.GroupVersion]rest.Interface
}

// NewKinds reads the table off the clientset's own method sets, so that no list of types has to be
// maintained: the method Pods(namespace string) of CoreV1() shows that pods are namespaced, and its
// Get and List name the types.
func NewKinds(client kubernetes.Interface) (*Kinds, error) {
	k := &Kinds{
		ByType:     map[reflect.Type]Kind{},
		ByResource: map[schema.GroupVersionResource]Kind{},
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
	if len(k.ByType) == 0 {
		return nil, fmt.Errorf("clientset %T offers no resources to watch", client)
	}
	return k, nil
}

func isNil(c rest.Interface) bool {
	v := reflect.ValueOf(c)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

func (k *Kinds) addGroup(gv schema.GroupVersion, group reflect.Type) {
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
		entry := Kind{
			Resource:   gv.WithResource(strings.ToLower(getter.Name)),
			Namespaced: namespaced,
			Type:       get.Type.Out(0),
			listType:   list.Type.Out(0),
		}
		k.ByType[entry.Type] = entry
		k.ByResource[entry.Resource] = entry
	}
}

// Reader returns how to read objects of kind e.
func (k *Kinds) Reader(e Kind) Reader {
	return typedResource{client: k.clients[e.Resource.GroupVersion()], kind: e}
}
