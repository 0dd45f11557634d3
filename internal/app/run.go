package app

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/server/healthz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/scheme"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	metricsfeatures "k8s.io/component-base/metrics/features"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/version"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"

	"github.com/flotilla-kube/flotilla/internal/app/heap"
	appmetrics "github.com/flotilla-kube/flotilla/internal/app/metrics"
	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/internal/status/page"
	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// apiServerPatience is how long to wait for the API server, as upstream does.
const apiServerPatience = 10 * time.Second

// Run runs the process until ctx ends. It returns after everything that it started has ended,
// except event recording, which gets no time to finish.
func Run(ctx context.Context, c *config.CompletedConfig, o *Options) error {
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", version.Get(), "member", o.Fleet.Member, "fleet", o.Fleet.Name)
	logger.Info("Golang settings", "GOGC", os.Getenv("GOGC"), "GOMAXPROCS", os.Getenv("GOMAXPROCS"), "GOTRACEBACK", os.Getenv("GOTRACEBACK"), "GOMEMLIMIT", os.Getenv("GOMEMLIMIT"))
	if limit, err := heap.Limit(); err != nil {
		logger.Error(err, "Go has no memory limit")
	} else if limit > 0 {
		logger.Info("Go's memory limit is a share of the container's", "bytes", limit, "share", heap.Share)
	}
	if err := publishConfig(c); err != nil {
		return err
	}
	shade, err := newShade(c, o)
	if err != nil {
		return err
	}
	c.EventBroadcaster.StartStructuredLogging(3) // level 3: each is a log line anyway
	c.EventBroadcaster.StartRecordingToSink(&v1core.EventSinkImpl{Interface: c.Client.CoreV1().Events("")})
	defer c.EventBroadcaster.Shutdown()

	probes := &probes{}
	var always []healthz.HealthChecker
	if o.Generic.LeaderElection.LeaderElect {
		always = append(always, probes.election())
	}
	endpoints := controllers.NewEndpoints(always...)
	process, leaderLocks, err := newProcess(c, o, endpoints)
	if err != nil {
		return err
	}

	stopServing := make(chan struct{})
	fleetPage := page.New(page.Config{Fleet: o.Fleet.Name, Member: o.Fleet.Member, Version: version.Get().GitVersion})
	stopped, err := serve(c, endpoints, fleetPage, shade, probes, stopServing)
	if err != nil {
		return fmt.Errorf("serving on the secure port: %w", err)
	}
	defer func() { close(stopServing); <-stopped }()

	// A member waits for its Leases, however long the API server is away.
	if shade != nil || !o.Generic.LeaderElection.LeaderElect {
		if err := genericcontrollermanager.WaitForAPIServer(c.Client, apiServerPatience); err != nil {
			return fmt.Errorf("waited %v for the API server at %s to be healthy: %w", apiServerPatience, c.Kubeconfig.Host, err)
		}
	}
	var running sync.WaitGroup
	processCtx, stopProcess := context.WithCancel(context.WithoutCancel(ctx))
	surplus := heap.NewReleaser(process.Clock(), nil)
	running.Go(func() { process.Run(processCtx) })
	running.Go(func() { surplus.Run(processCtx) })
	defer running.Wait()
	defer stopProcess()

	if shade != nil {
		fleetPage.Say("This process is a shadow: it is not a member and writes nothing. Its report is at " + shadowPath + ".")
		return shade.run(ctx, c, o, process, surplus, probes)
	}
	if !o.Generic.LeaderElection.LeaderElect {
		fleetPage.Say("There is no fleet: with --leader-elect=false this process runs every controller on everything, by itself.")
		return runAlone(ctx, process, c.ControllerShutdownTimeout, surplus, probes)
	}
	return runMember(ctx, c, o, process, leaderLocks, fleetPage, surplus, probes)
}

// runAlone runs every controller on everything, without Leases.
func runAlone(ctx context.Context, process *controllers.Process, shutdown time.Duration, surplus *heap.Releaser, probes *probes) error {
	full := surplus.Fill()
	defer full()
	var running atomic.Bool
	instance, err := process.Build(context.WithoutCancel(ctx), controllers.Spec{
		Controllers: allControllers(), ShutdownTimeout: shutdown, Running: func() { full(); running.Store(true) },
	})
	if err != nil {
		return err
	}
	isReady := func() error {
		if !running.Load() {
			return fmt.Errorf("caches have not synced")
		}
		return nil
	}
	well := func() error { return nil }
	probes.set(isReady, isReady, well, well)
	return instance.Run(ctx)
}

func allControllers() []string {
	var all []string
	for _, row := range catalogue.All() {
		all = append(all, row.Name)
	}
	return all
}

// runMember runs what the fleet gives to this process while the fleet holds its leader locks.
func runMember(ctx context.Context, c *config.CompletedConfig, o *Options, process *controllers.Process, leaderLocks []string, fleetPage *page.Page, surplus *heap.Releaser, probes *probes) error {
	shards, err := shardsOf(o, process, surplus)
	if err != nil {
		return err
	}
	enforced, stopLooking := watchPolicy(ctx, c, c.ComponentConfig.Generic.LeaderElection.ResourceNamespace)
	defer stopLooking()
	master := appmetrics.NewMaster()
	options := fleetOptions(c, o, leaderLocks, parts{
		clock: process.Clock(), memory: process.Memory, enforced: enforced,
		observe: func(e fleet.Event) { master.Observe(e); surplus.Observe(e) },
	})
	door, err := flotilla.New(c.Kubeconfig, options)
	if err != nil {
		return err
	}
	door.Shards(shards)
	member, err := door.Prepare(ctx)
	if err != nil {
		return err
	}
	process.PublishCredentials(member.PublishCredential)
	if !faults.Bare {
		master.Register(member)
	}
	fleetPage.Show(member, leaderLocks)
	probes.set(member.Ready, member.Complete, member.Live, func() error { return member.Renewing(electionTolerance) })
	return door.Run(ctx)
}

// shardsOf returns what the fleet runs: upstream's controllers, by the catalogue.
func shardsOf(o *Options, process *controllers.Process, surplus filler) (flotilla.Shards, error) {
	plan, err := catalogue.DefaultPlan(o.Fleet.Shards)
	if err != nil {
		return flotilla.Shards{}, fmt.Errorf("--shards %d: %w", o.Fleet.Shards, err)
	}
	return flotilla.Shards{
		Plan:      plan,
		Check:     catalogue.CheckParts,
		Catalogue: catalogue.Build(version.Get().GitVersion),
		Forgets:   sets.New(catalogue.Forgetful()...).Has,
		Build: func(ctx context.Context, w fleet.Work) (fleet.Instance, error) {
			i, err := buildShard(ctx, process, surplus, w)
			if err != nil {
				return nil, err // not i: a nil *shardInstance would be an Instance that is not nil
			}
			return i, nil
		},
		Expect:    process.Pool().Expect,
		Informers: process.Pool(),
	}, nil
}

// parts are what the fleet's options need from the process, in addition to its flags.
type parts struct {
	clock    election.Clock
	memory   func() (live, beside int64)
	enforced func() bool
	observe  func(fleet.Event)
}

// fleetOptions returns the fleet's options as the flags set them, with parts of the process. The
// options of metrics come from upstream's flags for all metrics of the process: component-base,
// which obeys the flags, does not make the member's. --allow-metric-labels is not among them: their
// labels have few values anyway.
func fleetOptions(
	c *config.CompletedConfig, o *Options, leaderLocks []string, p parts,
) flotilla.Options {
	options := flotilla.Options{
		Fleet: o.Fleet.Name, Member: o.Fleet.Member, Node: o.Fleet.Node, Zone: o.Fleet.Zone,
		Namespace:       c.ComponentConfig.Generic.LeaderElection.ResourceNamespace,
		Rings:           o.Fleet.rings(),
		LeaderLocks:     leaderLocks,
		LeaderLockDelay: flotilla.OrNever(o.Fleet.LeaderLockDelay),
		ReplanInterval:  flotilla.OrNever(o.Fleet.ReplanInterval),
		Timing:          o.timing(),
		RebalanceDelay:  flotilla.OrNever(o.Fleet.RebalanceDelay),
		Use:             newUsage(time.Now, processorTime).since,
		HandoffTimeout:  o.Fleet.HandoffTimeout,
		// Upstream's flag. Its 0, no limit, means the lease duration here.
		ShutdownTimeout:  max(0, c.ControllerShutdownTimeout),
		Handoffs:         o.Fleet.Handoffs,
		Standby:          o.Fleet.Standby,
		FenceDelay:       o.Fleet.FenceDelay,
		MetricStability:  appmetrics.Stability,
		DisabledMetrics:  o.Metrics.DisabledMetrics,
		NativeHistograms: utilfeature.DefaultFeatureGate.Enabled(metricsfeatures.NativeHistograms),
		Events:           eventRecorder(c, o),
		Exit:             exit,
		Clock:            p.clock,
		Memory: func() leaseapi.Memory {
			live, beside := p.memory()
			return leaseapi.Memory{Live: live, Beside: beside}
		},
		Enforced: p.enforced,
		Observe:  p.observe,
	}
	if !faults.Bare {
		options.Registerer = legacyregistry.Registerer()
	}
	return options
}

// eventRecorder returns a recorder of events that name the member, as those of every fleet do.
// Upstream's names only the component, which is the same for all members.
func eventRecorder(c *config.CompletedConfig, o *Options) record.EventRecorder {
	source := corev1.EventSource{Component: o.Fleet.Name, Host: o.Fleet.Member}
	return c.EventBroadcaster.NewRecorder(scheme.Scheme, source)
}

// buildShard builds a shard's controllers.
func buildShard(ctx context.Context, process *controllers.Process, surplus filler, w fleet.Work) (*shardInstance, error) {
	start := time.Now()
	part, names := controllers.Collects(w.Shard, w.Controllers)
	i := &shardInstance{surplus: surplus, within: w.Shard.Range}
	instance, err := process.Build(ctx, controllers.Spec{
		ID: w.Shard.ID, Range: w.Shard.Range, Namespaced: w.Shard.Namespaced(), Controllers: names, Collect: part, Share: w.Share, Shards: w.Shards, Fence: w.Fence, Closed: w.Closed,
		Running: func() {
			i.full()
			if w.Running != nil {
				w.Running()
			}
		},
	})
	if err != nil {
		return nil, err
	}
	i.Instance, i.built = instance, time.Since(start).Round(time.Millisecond)
	return i, nil
}

// filler is told that caches are being filled, until done is called.
type filler interface{ Fill() (done func()) }

// shardInstance reports while a shard's caches are being filled, and when its controllers begin.
type shardInstance struct {
	*controllers.Instance
	surplus filler
	built   time.Duration
	within  shard.Range
	// full is called once the controllers run, in Run.
	full func()
}

// Warm implements fleet.Instance.
func (i *shardInstance) Warm(ctx context.Context) error {
	defer i.surplus.Fill()()
	return i.Instance.Warm(ctx)
}

// Load implements fleet.Loader.
func (i *shardInstance) Load() (fleet.Load, bool) {
	load, there := i.Instance.Load()
	return fleet.Load(load), there
}

// Run implements fleet.Instance.
func (i *shardInstance) Run(ctx context.Context) error {
	i.full = i.surplus.Fill()
	defer i.full() // in case they never run
	klog.FromContext(ctx).V(1).Info("Running the shard's controllers", "controllers", len(i.Controllers()), "range", i.within, "built", i.built)
	return i.Instance.Run(ctx)
}
