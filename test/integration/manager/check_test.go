package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/manager"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// clients are a controller's clients, of either library.
type clients interface {
	get(ctx context.Context, namespace, name string) error
	create(ctx context.Context, namespace, name string) error
	listAll(ctx context.Context) error
	nodes(ctx context.Context) error
}

// act is what a controller does when it is called for a namespace, once for each.
type act func(ctx context.Context, c clients, namespace string) error

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// clientGo are the clients of a controller that uses client-go.
type clientGo struct{ kubernetes.Interface }

func (c clientGo) get(ctx context.Context, namespace, name string) error {
	_, err := c.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	return err
}

func (c clientGo) create(ctx context.Context, namespace, name string) error {
	_, err := c.CoreV1().ConfigMaps(namespace).Create(ctx, configMap(namespace, name), metav1.CreateOptions{})
	return err
}

func (c clientGo) listAll(ctx context.Context) error {
	_, err := c.CoreV1().ConfigMaps(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	return err
}

func (c clientGo) nodes(ctx context.Context) error {
	_, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	return err
}

// runtimes are the clients of a controller that uses controller-runtime.
type runtimes struct{ ctrlmanager.Manager }

func (c runtimes) get(ctx context.Context, namespace, name string) error {
	return c.GetClient().Get(ctx, ctrlclient.ObjectKey{Namespace: namespace, Name: name}, &corev1.ConfigMap{})
}

func (c runtimes) create(ctx context.Context, namespace, name string) error {
	return c.GetClient().Create(ctx, configMap(namespace, name))
}

func (c runtimes) listAll(ctx context.Context) error {
	return c.GetAPIReader().List(ctx, &corev1.ConfigMapList{})
}

func (c runtimes) nodes(ctx context.Context) error {
	return c.GetAPIReader().List(ctx, &corev1.NodeList{})
}

// tally counts the namespaces that have been handled.
type tally struct {
	mu      sync.Mutex
	done    map[string]bool
	changed chan struct{}
}

// once calls do, the first time for a namespace, and records its success.
func (y *tally) once(namespace string, do func() error) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.done[namespace] {
		return nil
	}
	if err := do(); err != nil {
		return err
	}
	y.done[namespace] = true
	if len(y.done) == teams {
		close(y.changed)
	}
	return nil
}

// onClientGo is a controller that is called for each team's ConfigMap.
func onClientGo(y *tally, do act, more ...func(kubernetes.Interface)) flotilla.Build {
	return func(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		client, err := kubernetes.NewForConfig(s.Config())
		if err != nil {
			return nil, err
		}
		names := make(chan string, teams)
		_, err = s.Informers().Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) {
				if m, is := obj.(*corev1.ConfigMap); is && m.Name == "a" {
					names <- m.Namespace
				}
			},
		})
		return flotilla.RunnableFunc(func(ctx context.Context) error {
			for _, m := range more {
				m(client)
			}
			for {
				select {
				case namespace := <-names:
					if err := y.once(namespace, func() error { return do(ctx, clientGo{client}, namespace) }); err != nil {
						return err
					}
				case <-ctx.Done():
					return nil
				}
			}
		}), err
	}
}

// onControllerRuntime is the same with controller-runtime.
func onControllerRuntime(y *tally, do act) flotilla.Build {
	return manager.Build(clientscheme.Scheme, func(mgr ctrlmanager.Manager) error {
		return builder.ControllerManagedBy(mgr).Named("check").For(&corev1.ConfigMap{}).Complete(
			reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
				if r.Name != "a" {
					return reconcile.Result{}, nil
				}
				return reconcile.Result{}, y.once(r.Namespace, func() error { return do(ctx, runtimes{mgr}, r.Namespace) })
			}))
	})
}

// checkOf checks a fleet of one controller until it has handled all teams.
func checkOf(t *testing.T, build flotilla.Build, y *tally) *flotilla.Report {
	t.Helper()
	f, err := flotilla.New(plane.AdminConfig(), flotilla.Options{Fleet: "check", Namespace: metav1.NamespaceDefault, Member: "one"})
	if err != nil {
		t.Fatal(err)
	}
	f.Namespaced("check", build)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	report, err := f.Check(ctx, func(ctx context.Context) error {
		select {
		case <-y.changed:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestCheck has controllers of either library do what a controller of a fleet may do and what it
// may not, on a real API server.
func TestCheck(t *testing.T) {
	t.Parallel()
	halves, err := shard.EqualRanges(2)
	if err != nil {
		t.Fatal(err)
	}
	// An object in the half without the first team.
	foreign := 0
	for i := range teams {
		if halves[0].ContainsNamespace(team(0)) != halves[0].ContainsNamespace(team(i)) {
			foreign++
		}
	}
	times := func(n int) string { return fmt.Sprintf("%d times", n) }
	for _, tc := range []struct {
		name string
		do   func(ctx context.Context, c clients, namespace, test string) error
		want []string // findings
		idle []string
	}{
		{name: "good", do: func(ctx context.Context, c clients, namespace, _ string) error {
			return errors.Join(c.get(ctx, namespace, "a"), c.nodes(ctx))
		}},
		{name: "reads", do: func(ctx context.Context, c clients, _, _ string) error {
			return c.get(ctx, team(0), "a")
		}, want: []string{"check: get configmaps in namespace " + team(0) + ", " + times(foreign)}},
		{name: "writes", do: func(ctx context.Context, c clients, namespace, test string) error {
			return c.create(ctx, team(0), "of-"+namespace+"-"+test)
		}, want: []string{"check: create configmaps in namespace " + team(0) + ", " + times(foreign)}},
		{name: "lists", do: func(ctx context.Context, c clients, _, _ string) error {
			return c.listAll(ctx)
		}, want: []string{"check: list configmaps in all namespaces, " + times(teams)}},
		{name: "idle", do: func(ctx context.Context, c clients, namespace, _ string) error {
			if !halves[0].ContainsNamespace(namespace) {
				return errIdle
			}
			return nil
		}, idle: []string{"namespaces/01"}},
	} {
		for style, build := range map[string]func(*tally, act) flotilla.Build{
			"client-go":          func(y *tally, do act) flotilla.Build { return onClientGo(y, do) },
			"controller-runtime": onControllerRuntime,
		} {
			t.Run(tc.name+" on "+style, func(t *testing.T) {
				t.Parallel()
				test := tc.name + "-" + style
				y := &tally{done: map[string]bool{}, changed: make(chan struct{})}
				report := checkOf(t, build(y, func(ctx context.Context, c clients, namespace string) error {
					if err := tc.do(ctx, c, namespace, test); errors.Is(err, errIdle) {
						return nil
					} else if err != nil {
						return err
					}
					err := c.create(ctx, namespace, "checked-"+test) // its own
					if apierrors.IsAlreadyExists(err) {
						return nil
					}
					return err
				}), y)
				requireFindings(t, report, tc.want, tc.idle)
			})
		}
	}
}

// errIdle is returned by an act that does nothing for a namespace.
var errIdle = errors.New("nothing to do")

// requireFindings requires that a report has exactly these findings, caused by the test.
func requireFindings(t *testing.T, r *flotilla.Report, want, idle []string) {
	t.Helper()
	var found, at []string
	for _, f := range r.Findings {
		what, where, _ := strings.Cut(f.String(), ", in ")
		found = append(found, what)
		if !strings.Contains(where, "check_test.go:") {
			t.Errorf("%s: the caller is %q, want one in this file", what, where)
		}
	}
	for _, id := range r.Idle {
		at = append(at, id.String())
	}
	if !slices.Equal(found, want) || !slices.Equal(at, idle) {
		t.Errorf("found %q and idle %q, want %q and %q", found, at, want, idle)
	}
	if clean := len(want)+len(idle) == 0; (r.Err(nil) == nil) != clean {
		t.Errorf("the report's error is %v", r.Err(nil))
	}
}

// TestCheckFindsInformersOfAControllersOwn has a controller on client-go that creates its own
// informers.
func TestCheckFindsInformersOfAControllersOwn(t *testing.T) {
	t.Parallel()
	y := &tally{done: map[string]bool{}, changed: make(chan struct{})}
	do := func(ctx context.Context, c clients, namespace string) error {
		return c.create(ctx, namespace, "informed")
	}
	report := checkOf(t, onClientGo(y, do, func(client kubernetes.Interface) {
		factory := informers.NewSharedInformerFactory(client, 0)
		secrets := factory.Core().V1().Secrets().Informer()
		factory.StartWithContext(t.Context())
		cache.WaitForCacheSync(t.Context().Done(), secrets.HasSynced)
	}), y)
	if len(report.Findings) == 0 {
		t.Error("nothing was found")
	}
	for _, f := range report.Findings {
		if !f.Informer || f.Resource.Resource != "secrets" || f.Namespace != "" || f.Writes() ||
			!strings.Contains(f.Advice(), "Shard.Informers") {
			t.Errorf("found %v: %s", f, f.Advice())
		}
	}
}
