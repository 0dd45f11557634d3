package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"

	"github.com/flotilla-kube/flotilla/internal/apiresponse"
	"github.com/flotilla-kube/flotilla/internal/app/heap"
	"github.com/flotilla-kube/flotilla/internal/app/shadow"
	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// shadowLogs is how often a shadow logs a summary. shadowPrints is how often it prints the report:
// first shadowLogs after the caches are full, and at the end.
const (
	shadowLogs   = time.Minute
	shadowPrints = 10 * time.Minute
)

// shade is the shadow's part of a process.
type shade struct {
	*shadow.Shadow
	// serverPath is the path in the address of the API server.
	serverPath string
	reporter   *shadow.Reporter
	// questions is the configuration of the client that asks about rights. mints is set if a member
	// with these flags would mint tokens.
	questions *rest.Config
	mints     bool
	ignored   []string

	mu       sync.Mutex
	plan     string
	shards   []*rehearsed // as many as are built
	assigned []shadow.Assignment
	notRun   []string
	leaked   atomic.Int64
}

// rehearsed is a shard whose controllers the shadow builds and runs.
type rehearsed struct {
	*controllers.Instance
	// begun is set once the controllers run. Before that, caches that nobody has asked for yet are
	// not waited for. failed is why they never will; nil otherwise.
	begun  bool
	failed error
}

// noPlugins is a folder that neither exists nor can be made: without it the driver plugins there
// are not even asked for their names.
const noPlugins = "/proc/flotilla-shadow/no-plugins"

// newShade makes every client that the process has or will have unable to write; nil without
// --shadow.
func newShade(c *config.CompletedConfig, o *Options) (*shade, error) {
	if !o.Fleet.Shadow.Enabled() {
		return nil, nil
	}
	serverPath := apiresponse.ServerPath(c.Kubeconfig)
	s := &shade{Shadow: shadow.New(serverPath, time.Now), serverPath: serverPath, ignored: shadowIgnores(o)}
	s.reporter = shadow.NewReporter(s.Shadow, func() shadow.Member { return s.member(o) })
	s.questions = rest.CopyConfig(c.Kubeconfig)
	s.questions.WrapTransport = transport.Wrappers(s.WrapQuestions, s.questions.WrapTransport)
	rest.AddUserAgent(s.questions, "shadow-rights")
	// Innermost, like the fence, and in the one configuration that all others are copied from.
	c.Kubeconfig.WrapTransport = transport.Wrappers(s.Wrap, c.Kubeconfig.WrapTransport)
	var err error
	c.Client, err = kubernetes.NewForConfig(rest.AddUserAgent(rest.CopyConfig(c.Kubeconfig), options.KubeControllerManagerUserAgent))
	if err != nil {
		return nil, fmt.Errorf("creating the client: %w", err)
	}
	// A shadow cannot ask for tokens: that is a write.
	s.mints = c.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials
	c.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials = false
	// The attach-detach controller gets events although it does not run, and looks for a volume's
	// plugin at each: that runs every driver in this folder.
	c.ComponentConfig.PersistentVolumeBinderController.VolumeConfiguration.FlexVolumePluginDir = noPlugins
	s.Register(func() bool { return s.full() == nil })
	return s, nil
}

// shadowIgnores returns the given flags that have no meaning for a shadow.
func shadowIgnores(o *Options) []string {
	var given []string
	if o.ParsedFlags == nil {
		return nil
	}
	for _, name := range []string{
		"leader-elect", "leader-elect-lease-duration", "leader-elect-renew-deadline", "leader-elect-retry-period", "leader-lock", "leader-lock-delay",
		"member-name", "rebalance-delay", "replan-interval", "handoff-timeout", "max-concurrent-handoffs", "standby", "fence-delay", "flex-volume-plugin-dir",
	} {
		for _, section := range o.ParsedFlags.FlagSets {
			if f := section.Lookup(name); f != nil && f.Changed && !slices.Contains(given, "--"+name) {
				given = append(given, "--"+name)
			}
		}
	}
	return given
}

// run builds and runs what the shadow would own until ctx ends, and prints the report.
func (s *shade) run(ctx context.Context, c *config.CompletedConfig, o *Options, process *controllers.Process, surplus *heap.Releaser, probes *probes) error {
	logger := klog.FromContext(ctx)
	namespace := c.ComponentConfig.Generic.LeaderElection.ResourceNamespace
	plan, from, err := shadowPlan(ctx, c.Client, o, namespace)
	if err != nil {
		return err
	}
	assigned, err := o.Fleet.Shadow.Assign(o.Fleet.Name, plan, o.Fleet.rings())
	if err != nil {
		return fmt.Errorf("--shadow %s: %w", &o.Fleet.Shadow, err)
	}
	s.mu.Lock()
	s.plan, s.assigned = from, assigned
	s.notRun = process.Runs(actingOutside(assigned))
	s.mu.Unlock()
	process.Idle(s.notRun)
	logger.Info("Shadow: no write is sent", "member", o.Fleet.Shadow.String(), "plan", from, "shards", len(assigned), "notRun", s.notRun)
	well := func() error { return nil }
	probes.set(s.full, s.full, well, well)

	var running sync.WaitGroup
	defer running.Wait()
	// Nothing ends before the report is written.
	runCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ask, err := s.asking(c, o, namespace)
	if err != nil {
		return err
	}
	running.Go(func() { s.Ask(runCtx, ask) })
	closed := make(chan struct{})
	defer close(closed)
	for _, a := range assigned {
		run, err := s.build(runCtx, process, surplus, a, closed)
		if err != nil {
			return err
		}
		running.Go(func() {
			if err := run(runCtx); err != nil {
				logger.Error(err, "Could not run the shard's controllers", "shard", a.Shard.ID)
			}
		})
	}
	s.log(ctx)
	return s.reporter.Report().Text(os.Stdout)
}

// shadowPlan returns the plan of the running fleet, or else that of a new one, and says which.
func shadowPlan(ctx context.Context, client kubernetes.Interface, o *Options, namespace string) (shard.Plan, string, error) {
	initial, err := catalogue.DefaultPlan(o.Fleet.Shards)
	if err != nil {
		return shard.Plan{}, "", fmt.Errorf("--shards %d: %w", o.Fleet.Shards, err)
	}
	name := leaseapi.PlanLease(o.Fleet.Name)
	lease, err := client.CoordinationV1().Leases(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return initial, fmt.Sprintf("that of a new fleet, --shards=%d: there is no Lease %s/%s", o.Fleet.Shards, namespace, name), nil
	case apierrors.IsForbidden(err):
		return initial, fmt.Sprintf("that of a new fleet, --shards=%d: Lease %s/%s may not be read", o.Fleet.Shards, namespace, name), nil
	case err != nil:
		return shard.Plan{}, "", fmt.Errorf("reading the plan: %w", err)
	}
	plan, err := leaseapi.PlanOn(lease)
	if errors.Is(err, leaseapi.ErrNoPlan) {
		return initial, fmt.Sprintf("that of a new fleet, --shards=%d: Lease %s/%s has none", o.Fleet.Shards, namespace, name), nil
	}
	if err == nil {
		err = catalogue.CheckParts(plan)
	}
	if err != nil {
		return shard.Plan{}, "", fmt.Errorf("the plan of the fleet %s: %w", o.Fleet.Name, err)
	}
	return plan, fmt.Sprintf("generation %d of the running fleet", plan.Generation), nil
}

// actingOutside returns the controllers that no fence in a client can keep from acting.
func actingOutside(assigned []shadow.Assignment) []string {
	var all []string
	for _, a := range assigned {
		for _, name := range a.Controllers {
			if row, known := catalogue.Lookup(name); known && row.ActsOutside != "" && !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all
}

// asking says whose rights to ask about.
func (s *shade) asking(c *config.CompletedConfig, o *Options, namespace string) (shadow.Asking, error) {
	client, err := kubernetes.NewForConfig(s.questions)
	if err != nil {
		return shadow.Asking{}, fmt.Errorf("creating the client that asks for rights: %w", err)
	}
	a := shadow.Asking{
		Client: client.AuthorizationV1(), User: o.Fleet.ShadowRightsOf, Namespace: namespace, Mints: s.mints,
	}
	if s.mints {
		a.Account = accountOf(catalogue.Identities())
	}
	return a, nil
}

// accountOf returns the service account of a controller's client.
func accountOf(identities map[string][]string) func(client string) string {
	return func(client string) string {
		for _, name := range identities[client] {
			if row, _ := catalogue.Lookup(name); !slices.Contains(row.Needs, catalogue.NeedRootClient) {
				return "system:serviceaccount:" + metav1.NamespaceSystem + ":" + client
			}
		}
		return ""
	}
}

// build builds a shard's controllers behind a fence that nobody opens, and returns what runs them.
// It closes with closed.
func (s *shade) build(ctx context.Context, process *controllers.Process, surplus filler, a shadow.Assignment, closed <-chan struct{}) (run func(context.Context) error, err error) {
	shut, err := fence.New(fence.Config{
		Member: "shadow", Shard: a.Shard.ID.String(), ServerPath: s.serverPath, Clock: process.Clock(), OnRefused: func(fence.Refusal) { s.leaked.Add(1) },
	})
	if err != nil {
		return nil, err
	}
	one := &rehearsed{}
	built, err := buildShard(ctx, process, surplus, fleet.Work{
		Shard: a.Shard, Controllers: a.Controllers, Share: a.Share, Shards: a.Shards, Fence: shut.Wrap, Closed: closed,
		Running: func() { s.note(func() { one.begun = true }) },
	})
	if err != nil {
		return nil, fmt.Errorf("building shard %s: %w", a.Shard.ID, err)
	}
	one.Instance = built.Instance
	s.note(func() { s.shards = append(s.shards, one) })
	return func(ctx context.Context) error {
		err := built.Run(ctx)
		if err != nil {
			s.note(func() { one.failed = fmt.Errorf("shard %s cannot run: %w", a.Shard.ID, err) })
		}
		return err
	}, nil
}

func (s *shade) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// full returns why the caches are not full, or which shards cannot run; nil if all run with full
// caches.
func (s *shade) full() error {
	s.mu.Lock()
	plan, all := s.plan, len(s.assigned)
	var begun []*rehearsed
	var failed []error
	for _, one := range s.shards {
		switch {
		case one.failed != nil:
			failed = append(failed, one.failed)
		case one.begun:
			begun = append(begun, one)
		}
	}
	s.mu.Unlock()
	if plan == "" {
		return errNotReady
	}
	filled := 0
	for _, one := range begun {
		if one.Informers().HasSynced() {
			filled++
		}
	}
	if filled == all {
		return nil
	}
	err := fmt.Errorf("%d of the shadow's %d shards have filled their caches", filled, all)
	for _, why := range failed {
		err = fmt.Errorf("%w; %w", err, why)
	}
	if refused := s.RefusedReads(); len(refused) > 0 {
		err = fmt.Errorf("%w; the API server refuses %s", err, strings.Join(refused, ", "))
	}
	return err
}

// member returns what the process knows about itself.
func (s *shade) member(o *Options) shadow.Member {
	m := shadow.Member{
		Version: version.Get().GitVersion, Fleet: o.Fleet.Name, Shadow: o.Fleet.Shadow.String(), Ignored: s.ignored,
		Leaked: s.leaked.Load(), Memory: memoryNow(),
	}
	s.mu.Lock()
	m.Plan, m.NotRun = s.plan, s.notRun
	for _, a := range s.assigned {
		m.Shards = append(m.Shards, a.Shard.ID.String())
	}
	shards := slices.Clone(s.shards)
	s.mu.Unlock()
	if err := s.full(); err != nil {
		m.NotReady = err.Error()
	} else {
		m.Ready = true
	}
	for _, one := range shards {
		if load, there := one.Informers().Load(); there {
			m.Memory.Objects += load.Objects
		}
	}
	return m
}

// log logs a summary at intervals, and prints the report at longer ones, until ctx ends.
func (s *shade) log(ctx context.Context) {
	logger := klog.FromContext(ctx)
	look := time.NewTicker(time.Second)
	defer look.Stop()
	wasFull := false
	summary, table := time.Now(), time.Now().Add(shadowPrints)
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		now, full := time.Now(), s.full() == nil
		if full && !wasFull {
			summary, table = now, now.Add(shadowLogs) // the rights are known by then
		}
		wasFull = full
		if now.Before(summary) {
			continue
		}
		summary = now.Add(shadowLogs)
		r := s.reporter.Report()
		logger.Info("Shadow", "ready", r.Ready, "notReady", r.NotReady, "liveHeap", r.Memory.Live, "resident", r.Memory.Resident, "objects", r.Memory.Objects,
			"watches", r.Reads.Open, "receivedBytes", r.Reads.Bytes, "eventsPerSecond", r.Steady.Events, "missingRights", len(r.Rights.Missing), "unknownRights", r.Rights.Unanswered,
			"wouldWrite", r.Objects, "lasting", r.Lasting)
		if !now.Before(table) {
			table = now.Add(shadowPrints)
			if err := r.Text(os.Stdout); err != nil {
				logger.Error(err, "Could not print the report")
			}
		}
	}
}
