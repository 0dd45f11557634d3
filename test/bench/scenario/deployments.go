package scenario

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/bench/result"
)

// phase is a step of the work: it changes each Deployment, and then waits for all.
type phase struct {
	name string
	// change writes the i-th Deployment and returns it; nil means a deletion.
	change func(ctx context.Context, env *Env, i int) (*appsv1.Deployment, error)
	// replicas returns the replicas of the i-th Deployment afterwards.
	replicas func(i int) int
	// left is how many Deployments exist afterwards, objects how many objects the phase changes.
	left, objects int
	// midway is called once when half of the Deployments have caught up; may be nil.
	midway func(context.Context) error
}

// initial returns 2 to 4 replicas.
func initial(i int) int { return 2 + i%3 }

func sum(n int, f func(int) int) int {
	total := 0
	for i := range n {
		total += f(i)
	}
	return total
}

// basicPhases create Deployments and change them in every way.
func basicPhases(n int) []phase {
	up := func(i int) int { return initial(i) + 2 }
	one := func(int) int { return 1 }
	return []phase{
		{name: "create", change: create(initial), replicas: initial, left: n, objects: 2*n + sum(n, initial)},
		{name: "scale-up", change: scale(up), replicas: up, left: n, objects: n + 2*n},
		{name: "scale-down", change: scale(one), replicas: one, left: n, objects: n + sum(n, up) - n},
		// A new ReplicaSet, a new pod, and the end of the old one.
		{name: "template", change: retemplate, replicas: one, left: n, objects: n + n + 2*n},
		// Two ReplicaSets and a pod.
		{name: "delete", change: remove, replicas: func(int) int { return 0 }, objects: n + 3*n},
	}
}

func basic(ctx context.Context, env *Env) (Outcome, error) {
	return env.run(ctx, basicPhases(env.Params[Deployments])...)
}

// chaos is basic with a loss in the middle of the creation.
func chaos(ctx context.Context, env *Env) (Outcome, error) {
	phases := basicPhases(env.Params[Deployments])
	phases[0].midway = env.Kill
	return env.run(ctx, phases...)
}

// haveDeployments creates the Deployments with this many replicas; 0 means those in Params.
func haveDeployments(replicas int) func(context.Context, *Env) error {
	return func(ctx context.Context, env *Env) error {
		if err := haveServiceAccounts(ctx, env); err != nil {
			return err
		}
		each := func(int) int {
			if replicas == 0 {
				return env.Params[Replicas]
			}
			return replicas
		}
		n := env.Params[Deployments]
		_, err := env.run(ctx, phase{name: "create", change: create(each), replicas: each, left: n})
		return err
	}
}

// users returns a function that creates the Deployments with these replicas; nil means those in
// Params.
func users(replicas func(int) int) func(context.Context, *Env) error {
	return func(ctx context.Context, env *Env) error {
		each := replicas
		if each == nil {
			each = func(int) int { return env.Params[Replicas] }
		}
		change := create(each)
		return Each(ctx, env.Params[Deployments], func(ctx context.Context, i int) error {
			_, err := change(ctx, env, i)
			return err
		})
	}
}

func scaleOut(ctx context.Context, env *Env) (Outcome, error) {
	n, k := env.Params[Deployments], env.Params[Replicas]
	to := func(int) int { return k }
	return env.run(ctx, phase{name: "scale-out", change: scale(to), replicas: to, left: n, objects: n + n*(k-1)})
}

func rollingUpdate(ctx context.Context, env *Env) (Outcome, error) {
	n, k := env.Params[Deployments], env.Params[Replicas]
	return env.run(ctx, phase{name: "rolling-update", change: retemplate, replicas: func(int) int { return k }, left: n, objects: 2*n + 2*n*k})
}

// run runs the phases in order.
func (e *Env) run(ctx context.Context, phases ...phase) (Outcome, error) {
	t, end, err := watch(ctx, e)
	if err != nil {
		return Outcome{}, err
	}
	defer end()
	var out Outcome
	t.begin()
	for _, p := range phases {
		began := time.Now()
		if err := e.phase(ctx, t, p); err != nil {
			return out, fmt.Errorf("phase %s: %w", p.name, err)
		}
		out.Phases = append(out.Phases, result.Phase{Name: p.name, Seconds: time.Since(began).Seconds()})
		out.Began = append(out.Began, began)
		out.Objects += p.objects
	}
	latency, gap := t.seen()
	out.Latency, out.LongestGap = latency, new(gap.Seconds())
	return out, nil
}

func (e *Env) phase(ctx context.Context, t *tracker, p phase) error {
	n := e.Params[Deployments]
	err := Each(ctx, n, func(ctx context.Context, i int) error {
		namespace, name := e.place(i)
		key := namespace + "/" + name
		if p.left > 0 {
			t.writing(key)
		}
		d, err := p.change(ctx, e, i)
		if err == nil && d != nil {
			t.wrote(key, d)
		}
		return err
	})
	if err != nil {
		return err
	}
	pods := 0
	if p.left > 0 {
		pods = sum(n, p.replicas)
	}
	return e.until(ctx, "all is as wanted", func(ctx context.Context) error {
		if p.midway != nil && t.waiting() <= n/2 {
			midway := p.midway
			p.midway = nil
			if err := midway(ctx); err != nil {
				return err
			}
		}
		return t.done(p.left, pods)
	})
}

// place returns where the i-th Deployment is. If there are fewer Deployments than namespaces, they
// are as evenly spread in the keyspace as those.
func (e *Env) place(i int) (namespace, name string) {
	names := e.Namespaces()
	step := max(1, len(names)/max(1, e.Params[Deployments]))
	return names[i*step%len(names)], fmt.Sprintf("d-%d", i)
}

func create(replicas func(int) int) func(context.Context, *Env, int) (*appsv1.Deployment, error) {
	return func(ctx context.Context, env *Env, i int) (*appsv1.Deployment, error) {
		namespace, name := env.place(i)
		labels := map[string]string{"app": name}
		return env.Client.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{workLabel: ""}},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(int32(replicas(i))), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name, workLabel: ""}},
					Spec: corev1.PodSpec{
						TerminationGracePeriodSeconds: ptr.To[int64](0),
						Containers:                    []corev1.Container{{Name: "main", Image: "none"}},
					},
				},
			},
		}, metav1.CreateOptions{})
	}
}

func scale(replicas func(int) int) func(context.Context, *Env, int) (*appsv1.Deployment, error) {
	return func(ctx context.Context, env *Env, i int) (*appsv1.Deployment, error) {
		return env.patch(ctx, i, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas(i)))
	}
}

// retemplate gives the pods another annotation, so that all are replaced.
func retemplate(ctx context.Context, env *Env, i int) (*appsv1.Deployment, error) {
	return env.patch(ctx, i, []byte(`{"spec":{"template":{"metadata":{"annotations":{"flotilla.dev/revision":"2"}}}}}`))
}

func (e *Env) patch(ctx context.Context, i int, patch []byte) (*appsv1.Deployment, error) {
	namespace, name := e.place(i)
	return e.Client.AppsV1().Deployments(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
}

func remove(ctx context.Context, env *Env, i int) (*appsv1.Deployment, error) {
	namespace, name := env.place(i)
	background := metav1.DeletePropagationBackground
	return nil, env.Client.AppsV1().Deployments(namespace).Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &background})
}
