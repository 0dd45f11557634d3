package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"

	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/command"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	// writers is how many requests of the benchmark are in flight at a time.
	writers = 16
)

// Names of the scenarios.
const (
	Basic         = "basic"
	ScaleOut      = "scale-out"
	RollingUpdate = "rolling-update"
	Chaos         = "chaos"
	Steady        = "steady"
	Burst         = "burst"
	Owners        = "owners"
	Arrivals      = "arrivals"
	IdleCost      = "idle-cost"
)

// Names returns the names of all scenarios, in the order in which they are run.
func Names() []string {
	return []string{Basic, ScaleOut, RollingUpdate, Chaos, Burst, Owners, Arrivals, Steady, IdleCost}
}

// Names of sizes, as in result.Run.Params.
const (
	Namespaces  = "namespaces"
	Deployments = "deployments"
	Replicas    = "replicas"
	Objects     = "objects"
	Pods        = "pods"
	Shards      = "shards"
	Seconds     = "seconds"
)

// Env is the environment of a scenario; NewEnv makes one.
type Env struct {
	Client   kubernetes.Interface
	Metadata metadata.Interface
	// Params are the sizes: Namespaces and so on.
	Params map[string]int
	// Prefix begins the names of the namespaces.
	Prefix string
	// Plain names the namespaces work-0, work-1 and so on, which are close together in the
	// keyspace, instead of using balanced names.
	Plain bool
	// Limit is the time limit of each phase of the work.
	Limit time.Duration
	// Kill kills one process of the system; Chaos calls it once.
	Kill func(context.Context) error
	// Ended returns an error if a process has ended by itself.
	Ended func() error

	places func() []string
}

// Outcome is the outcome of the work.
type Outcome struct {
	// Objects is how many objects controllers had to bring to their wanted state, counting each
	// created, changed or removed one.
	Objects int
	Phases  []result.Phase
	// Began is when each of Phases began; nil for Burst, Owners and Arrivals.
	Began   []time.Time
	Latency *result.Quantile
	// LongestGap is the longest time in which a watcher saw no controller act.
	LongestGap *float64
}

// Scenario is one kind of work. Everything but Work may be nil.
type Scenario struct {
	Prepare func(context.Context, *Env) error
	Ready   func(context.Context, *Env) error
	Work    func(context.Context, *Env) (Outcome, error)
	// Users creates at once what users create in Ready and Work, and waits for nothing. After
	// Prepare and Users, the controllers' writes in Ready and Work can be replayed, although users
	// change and delete nothing. Nil if that is impossible.
	Users func(context.Context, *Env) error
}

// Named returns the scenario of a name.
func Named(name string) (Scenario, error) {
	deployments := Scenario{Prepare: makeNamespaces, Ready: haveServiceAccounts}
	switch name {
	case Basic:
		deployments.Work, deployments.Users = basic, users(initial)
	case Chaos:
		deployments.Work = chaos
	case ScaleOut:
		deployments.Ready = haveDeployments(1)
		deployments.Work, deployments.Users = scaleOut, users(func(int) int { return 1 })
	case RollingUpdate:
		deployments.Ready = haveDeployments(0)
		deployments.Work, deployments.Users = rollingUpdate, users(nil)
	case Burst:
		return Scenario{Prepare: makeNamespaces, Ready: haveBurst, Work: burst}, nil
	case Owners:
		return Scenario{Prepare: makeNamespaces, Ready: haveOwners, Work: owners}, nil
	case Arrivals:
		return Scenario{Work: arrivals}, nil
	case Steady, IdleCost:
		return Scenario{Work: look}, nil
	default:
		return Scenario{}, fmt.Errorf("scenario %q: must be one of %v", name, Names())
	}
	return deployments, nil
}

// look lets time pass.
func look(ctx context.Context, env *Env) (Outcome, error) {
	if !command.Pause(ctx, time.Duration(env.Params[Seconds])*time.Second) {
		return Outcome{}, ctx.Err()
	}
	return Outcome{}, env.Ended()
}

// NewEnv completes an Env.
func NewEnv(e Env) *Env {
	e.places = sync.OnceValue(e.names)
	return &e
}

// Namespaces are those with the work.
func (e *Env) Namespaces() []string { return e.places() }

func (e *Env) names() []string {
	if !e.Plain {
		return BalancedNames(e.Prefix, e.Params[Namespaces])
	}
	var names []string
	for i := range e.Params[Namespaces] {
		names = append(names, fmt.Sprintf("%s-%d", e.Prefix, i))
	}
	return names
}

func makeNamespaces(ctx context.Context, env *Env) error {
	names := env.Namespaces()
	return Each(ctx, len(names), func(ctx context.Context, i int) error {
		_, err := env.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names[i]}}, metav1.CreateOptions{})
		return err
	})
}

// haveServiceAccounts waits for what pods need in the namespaces.
func haveServiceAccounts(ctx context.Context, env *Env) error {
	return env.until(ctx, "the namespaces have service accounts", func(ctx context.Context) error {
		list, err := env.Client.CoreV1().ServiceAccounts("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=default", ResourceVersion: "0"})
		if err != nil {
			return err
		}
		for _, name := range env.Namespaces() {
			if !slices.ContainsFunc(list.Items, func(a corev1.ServiceAccount) bool { return a.Namespace == name }) {
				return fmt.Errorf("%s has none", name)
			}
		}
		return nil
	})
}

// Each calls do for 0 to n-1, some at a time, and returns the first error.
func Each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workqueue.ParallelizeUntil(ctx, writers, n, func(i int) {
		if err := do(ctx, i); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}

// until waits for a condition while the system runs.
func (e *Env) until(ctx context.Context, what string, condition harness.Condition) error {
	_, err := harness.Await(ctx, e.Limit, what, func(ctx context.Context) error {
		if err := e.Ended(); err != nil {
			return fmt.Errorf("%w: %w", harness.ErrGiveUp, err)
		}
		return condition(ctx)
	})
	return err
}

// gone returns nil if the requested object does not exist.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		return errors.New("it still exists")
	}
	return err
}
