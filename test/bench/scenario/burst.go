package scenario

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/test/bench/result"
)

const ownerName = "owner"

// crowds are the two namespaces with many objects: one is deleted, in the other their owner is.
func (e *Env) crowds() (doomed, owned string) {
	names := e.Namespaces()
	return names[0], names[len(names)-1]
}

// haveBurst fills both namespaces.
func haveBurst(ctx context.Context, env *Env) error {
	doomed, owned := env.crowds()
	if doomed == owned {
		return fmt.Errorf("%d namespaces: a burst needs at least 2", env.Params[Namespaces])
	}
	owner, err := env.Client.CoreV1().ConfigMaps(owned).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ownerName}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	reference := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}
	return Each(ctx, 2*env.Params[Objects], func(ctx context.Context, i int) error {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("o-%d", i/2), Namespace: doomed}, Data: map[string]string{"key": "value"}}
		if i%2 == 1 {
			o.Namespace, o.OwnerReferences = owned, []metav1.OwnerReference{reference}
		}
		_, err := env.Client.CoreV1().ConfigMaps(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	})
}

// burst deletes a namespace and waits until it is gone, and then an owner and waits until all its
// dependents are gone.
func burst(ctx context.Context, env *Env) (Outcome, error) {
	doomed, owned := env.crowds()
	out := Outcome{Objects: 2*env.Params[Objects] + 2}
	measured := func(name string, do func() error) error {
		began := time.Now()
		if err := do(); err != nil {
			return fmt.Errorf("phase %s: %w", name, err)
		}
		out.Phases = append(out.Phases, result.Phase{Name: name, Seconds: time.Since(began).Seconds()})
		return nil
	}
	err := measured("namespace", func() error {
		if err := env.Client.CoreV1().Namespaces().Delete(ctx, doomed, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return env.until(ctx, "the namespace is gone", func(ctx context.Context) error {
			_, err := env.Client.CoreV1().Namespaces().Get(ctx, doomed, metav1.GetOptions{})
			return gone(err)
		})
	})
	if err != nil {
		return out, err
	}
	return out, measured("owner", func() error {
		background := metav1.DeletePropagationBackground
		if err := env.Client.CoreV1().ConfigMaps(owned).Delete(ctx, ownerName, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			return err
		}
		return env.until(ctx, "the owned objects are gone", func(ctx context.Context) error {
			// The certificate authority's ConfigMap stays. Names are sorted, so two show whether
			// there is another.
			list, err := env.Client.CoreV1().ConfigMaps(owned).List(ctx, metav1.ListOptions{Limit: 2})
			if err != nil {
				return err
			}
			for _, o := range list.Items {
				if len(o.OwnerReferences) > 0 {
					return fmt.Errorf("%s and %d others exist", o.Name, remaining(list))
				}
			}
			return nil
		})
	})
}

func remaining(list *corev1.ConfigMapList) int64 {
	if list.RemainingItemCount == nil {
		return 0
	}
	return *list.RemainingItemCount
}
