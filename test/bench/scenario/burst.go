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
	reference, err := haveOwner(ctx, env, owned)
	if err != nil {
		return err
	}
	return Each(ctx, 2*env.Params[Objects], func(ctx context.Context, i int) error {
		if i%2 == 1 {
			return haveObject(ctx, env, owned, i/2, *reference)
		}
		return haveObject(ctx, env, doomed, i/2)
	})
}

// haveOwners makes an owner in each namespace, and its dependents.
func haveOwners(ctx context.Context, env *Env) error {
	names := env.Namespaces()
	references := make([]*metav1.OwnerReference, len(names))
	err := Each(ctx, len(names), func(ctx context.Context, i int) (err error) {
		references[i], err = haveOwner(ctx, env, names[i])
		return err
	})
	if err != nil {
		return err
	}
	return Each(ctx, env.Params[Objects], func(ctx context.Context, i int) error {
		n := i % len(names)
		return haveObject(ctx, env, names[n], i/len(names), *references[n])
	})
}

// haveOwner makes the owner of a namespace.
func haveOwner(ctx context.Context, env *Env, namespace string) (*metav1.OwnerReference, error) {
	owner, err := env.Client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ownerName}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}, nil
}

// haveObject makes one small object with these owners.
func haveObject(ctx context.Context, env *Env, namespace string, i int, owners ...metav1.OwnerReference) error {
	meta := metav1.ObjectMeta{Name: fmt.Sprintf("o-%d", i), OwnerReferences: owners}
	_, err := env.Client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": "value"}}, metav1.CreateOptions{})
	return err
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
	return out, measured("owner", func() error { return deleteOwners(ctx, env, owned) })
}

// owners deletes the owner in each namespace and waits until all dependents are gone.
func owners(ctx context.Context, env *Env) (Outcome, error) {
	names, began := env.Namespaces(), time.Now()
	out := Outcome{Objects: len(names) + env.Params[Objects]}
	if err := deleteOwners(ctx, env, names...); err != nil {
		return out, err
	}
	out.Phases = []result.Phase{{Name: "owners", Seconds: time.Since(began).Seconds()}}
	return out, nil
}

// deleteOwners deletes the owners in these namespaces and waits until all their dependents are
// gone.
func deleteOwners(ctx context.Context, env *Env, namespaces ...string) error {
	background := metav1.DeletePropagationBackground
	err := Each(ctx, len(namespaces), func(ctx context.Context, i int) error {
		return env.Client.CoreV1().ConfigMaps(namespaces[i]).Delete(ctx, ownerName, metav1.DeleteOptions{PropagationPolicy: &background})
	})
	if err != nil {
		return err
	}
	return env.until(ctx, "the owned objects are gone", func(ctx context.Context) error {
		for ; len(namespaces) > 0; namespaces = namespaces[1:] {
			// The certificate authority's ConfigMap stays. Names are sorted, so two show whether
			// there is another.
			list, err := env.Client.CoreV1().ConfigMaps(namespaces[0]).List(ctx, metav1.ListOptions{Limit: 2})
			if err != nil {
				return err
			}
			for _, o := range list.Items {
				if len(o.OwnerReferences) > 0 {
					return fmt.Errorf("%s/%s and %d others exist", o.Namespace, o.Name, remaining(list))
				}
			}
		}
		return nil
	})
}

func remaining(list *corev1.ConfigMapList) int64 {
	if list.RemainingItemCount == nil {
		return 0
	}
	return *list.RemainingItemCount
}
