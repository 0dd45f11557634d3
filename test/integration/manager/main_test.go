// Package manager tests pkg/manager against a real API server: fleets of one member in this
// process, whose shards are controller-runtime Managers.
package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/manager"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	// There are enough teams that each range has some.
	ranges = 4
	teams  = 32
	label  = "flotilla.test/team"
)

var (
	plane  *controlplane.ControlPlane
	client kubernetes.Interface
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) (status int) {
	klog.LogToStderr(false)
	log.SetLogger(klog.Background())
	var err error
	if plane, err = controlplane.Start(context.Background(), controlplane.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, "Could not start the control plane:", err)
		return 1
	}
	defer func() {
		if err := plane.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "Could not stop the control plane:", err)
			status = 1
		}
	}()
	client = kubernetes.NewForConfigOrDie(plane.AdminConfig())
	if err := populate(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "Could not make the objects:", err)
		return 1
	}
	return m.Run()
}

// team returns the name of a namespace. The varying part comes first, because the hash hardly
// separates names that differ only at the end.
func team(i int) string { return fmt.Sprintf("%02d-in-all-the-teams", i) }

// populate creates a namespace for each team, with a ConfigMap and a Secret.
func populate(ctx context.Context) error {
	return harness.InParallel(teams, func(i int) error {
		meta := metav1.ObjectMeta{Name: "a", Namespace: team(i), Labels: map[string]string{label: "x"}}
		space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team(i), Labels: meta.Labels}}
		_, a := client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{})
		_, b := client.CoreV1().ConfigMaps(team(i)).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
		_, c := client.CoreV1().Secrets(team(i)).Create(ctx, &corev1.Secret{ObjectMeta: meta}, metav1.CreateOptions{})
		return errors.Join(a, b, c)
	})
}

// fleetName makes a DNS label of the test's name.
func fleetName(t *testing.T) string { return strings.ToLower(strings.ReplaceAll(t.Name(), "_", "-")) }

// shards are the Managers of a fleet by shard.
type shards struct {
	mu  sync.Mutex
	all map[string]shardOf
}

type shardOf struct {
	*flotilla.Shard
	mgr ctrlmanager.Manager
}

func (s *shards) add(shard *flotilla.Shard, mgr ctrlmanager.Manager) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]shardOf{}
	}
	s.all[shard.String()] = shardOf{shard, mgr}
}

func (s *shards) get() map[string]shardOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]shardOf{}
	for name, one := range s.all {
		all[name] = one
	}
	return all
}

// elected waits until each Manager leads, and returns them. A fleet counts as ready while a shard
// is only prepared, or is built once more.
func (s *shards) elected(t *testing.T) map[string]shardOf {
	t.Helper()
	var all map[string]shardOf
	harness.Eventually(t, harness.Patience, "every Manager leads", func(context.Context) error {
		all = s.get()
		for name, one := range all {
			select {
			case <-one.mgr.Elected():
			default:
				return fmt.Errorf("that of %s does not", name)
			}
		}
		return nil
	})
	return all
}

// build is manager.Build that records the Managers, and applies each of wrap to the result.
func (s *shards) build(
	setup func(*flotilla.Shard, ctrlmanager.Manager) error, wrap ...func(flotilla.Runnable) flotilla.Runnable,
) flotilla.Build {
	return func(ctx context.Context, shard *flotilla.Shard) (flotilla.Runnable, error) {
		r, err := manager.New(ctx, shard, manager.Options(shard, clientscheme.Scheme), func(mgr ctrlmanager.Manager) error {
			s.add(shard, mgr)
			return setup(shard, mgr)
		})
		for _, w := range wrap {
			if err == nil {
				r = w(r)
			}
		}
		return r, err
	}
}

// begin runs a fleet of one member. It returns a function that stops the fleet and returns its
// error.
func begin(t *testing.T, config *rest.Config, add func(*flotilla.Fleet), change ...func(*flotilla.Options)) (*flotilla.Fleet, func() error) {
	t.Helper()
	options := flotilla.Options{
		Fleet: fleetName(t), Namespace: metav1.NamespaceDefault, Member: "one", Ranges: ranges, RebalanceDelay: flotilla.Never,
		Exit: func(reason string) { t.Errorf("the fleet would have ended the process: %s", reason) },
	}
	for _, c := range change {
		c(&options)
	}
	f, err := flotilla.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	add(f)
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Background()))
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	end := sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(harness.Patience):
			return errors.New("the fleet has not ended")
		}
	})
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
	return f, end
}

func awaitReady(t *testing.T, f *flotilla.Fleet) {
	t.Helper()
	harness.Eventually(t, harness.Patience, "the fleet is ready", func(context.Context) error { return f.Ready() })
}

// owned returns the teams in the shard.
func owned(s *flotilla.Shard) []string {
	var names []string
	for i := range teams {
		if s.Owns(team(i)) {
			names = append(names, team(i))
		}
	}
	return names
}

// foreign returns a team outside the shard.
func foreign(s *flotilla.Shard) string {
	for i := range teams {
		if !s.Owns(team(i)) {
			return team(i)
		}
	}
	return ""
}

func requireSame(t *testing.T, what string, got, want []string) {
	t.Helper()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}
