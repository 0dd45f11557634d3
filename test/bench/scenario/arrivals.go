package scenario

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/flotilla-kube/flotilla/test/bench/result"
)

// given are the objects that controllers give each namespace.
var given = []struct {
	resource schema.GroupVersionResource
	name     string
}{
	{corev1.SchemeGroupVersion.WithResource("serviceaccounts"), "default"},
	{corev1.SchemeGroupVersion.WithResource("configmaps"), "kube-root-ca.crt"},
}

// arrivals creates all namespaces and waits until each has what controllers give it.
func arrivals(ctx context.Context, env *Env) (Outcome, error) {
	began := time.Now()
	out := Outcome{Objects: len(given) * env.Params[Namespaces]}
	if err := makeNamespaces(ctx, env); err != nil {
		return out, err
	}
	if err := env.until(ctx, "the namespaces have what controllers give them", env.everyoneHas); err != nil {
		return out, err
	}
	out.Phases = []result.Phase{{Name: "namespaces", Seconds: time.Since(began).Seconds()}}
	return out, nil
}

// everyoneHas fails while a namespace lacks something that controllers give it.
func (e *Env) everyoneHas(ctx context.Context) error {
	for _, g := range given {
		list, err := e.Metadata.Resource(g.resource).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + g.name, ResourceVersion: "0"})
		if err != nil {
			return err
		}
		have := map[string]bool{}
		for _, o := range list.Items {
			have[o.Namespace] = true
		}
		for _, name := range e.Namespaces() {
			if !have[name] {
				return fmt.Errorf("%s has no %s %s", name, g.resource.Resource, g.name)
			}
		}
	}
	return nil
}
