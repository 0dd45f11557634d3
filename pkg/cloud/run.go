package cloud

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/kubernetes"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/cloud-provider/app"
	configv1alpha "k8s.io/cloud-provider/config/v1alpha1"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/metrics/prometheus/slis"
	"k8s.io/component-base/version"
	genericcontrollermanager "k8s.io/controller-manager/app"
	controllerhealthz "k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// electionTolerance is how long after the end of a lease duration upstream's health check reports
// that a leader has not renewed.
const electionTolerance = 20 * time.Second

// run runs the process until ctx ends. It returns after everything that it started has ended,
// except event recording and what the provider has started.
func run(ctx context.Context, o flotilla.Options, c Controllers) error {
	logger := klog.FromContext(ctx)
	logger.Info("Starting", "version", version.Get(), "member", o.Member, "fleet", o.Fleet)
	if err := publishConfig(c); err != nil {
		return err
	}
	fleet, err := flotilla.New(c.Config.Kubeconfig, o)
	if err != nil {
		return err
	}
	// The provider's goroutines work for controllers until the last of them has returned.
	process, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	m, err := add(process, fleet, c)
	if err != nil {
		return err
	}
	sink, err := kubernetes.NewForConfig(
		rest.AddUserAgent(rest.CopyConfig(c.Config.Kubeconfig), component),
	)
	if err != nil {
		return fmt.Errorf("creating the client for events: %w", err)
	}
	c.Config.EventBroadcaster.StartStructuredLogging(0)
	c.Config.EventBroadcaster.StartRecordingToSink(
		&v1core.EventSinkImpl{Interface: sink.CoreV1().Events("")},
	)
	defer c.Config.EventBroadcaster.Shutdown()

	stopped, err := serve(m, fleet, process.Done())
	if err != nil {
		return fmt.Errorf("serving on the secure port: %w", err)
	}
	defer func() { end(); <-stopped }()
	return fleet.Run(ctx)
}

// publishConfig puts the configuration on /configz, in upstream's words.
func publishConfig(c Controllers) error {
	external := &configv1alpha.CloudControllerManagerConfiguration{}
	convert := configv1alpha.Convert_config_CloudControllerManagerConfiguration_To_v1alpha1_CloudControllerManagerConfiguration
	if err := convert(
		&c.Config.ComponentConfig, external, nil,
	); err != nil {
		return fmt.Errorf("converting the configuration for /configz: %w", err)
	}
	external.SetGroupVersionKind(
		configv1alpha.SchemeGroupVersion.WithKind("CloudControllerManagerConfiguration"),
	)
	page, err := configz.New(app.ConfigzName)
	if err != nil {
		return fmt.Errorf("registering /configz: %w", err)
	}
	return page.Set(external)
}

// serve starts the secure port and returns a channel that is closed once it has stopped, after stop
// was closed. Without a secure port it serves nothing.
func serve(m *manager, fleet *flotilla.Fleet, stop <-chan struct{}) (<-chan struct{}, error) {
	c := m.Config
	if c.SecureServing == nil {
		stopped := make(chan struct{})
		close(stopped)
		return stopped, nil
	}
	handler := genericcontrollermanager.BuildHandlerChain(
		routes(m, fleet), &c.Authorization, &c.Authentication,
	)
	stopped, _, err := c.SecureServing.Serve(handler, 0, stop)
	return stopped, err
}

// routes are upstream's, with /livez and /readyz in addition to /healthz.
func routes(m *manager, fleet *flotilla.Fleet) http.Handler {
	renewing := healthz.NamedCheck("leaderElection", func(*http.Request) error {
		if member := fleet.Member(); member != nil {
			return member.Renewing(electionTolerance)
		}
		return nil
	})
	handler := genericcontrollermanager.NewBaseHandler(
		&m.Config.ComponentConfig.Generic.Debugging,
		controllerhealthz.NewMutableHealthzHandler(renewing),
	)
	healthz.InstallLivezHandler(
		handler, healthz.PingHealthz,
		healthz.NamedCheck("fleet", func(*http.Request) error { return fleet.Live() }),
	)
	healthz.InstallReadyzHandler(
		handler, healthz.PingHealthz,
		healthz.NamedCheck("fleet", func(*http.Request) error { return fleet.Ready() }),
		healthz.NamedCheck("cloud", func(*http.Request) error {
			return m.ready(fleet.Ready(), runs(fleet))
		}),
	)
	slis.SLIMetricsWithReset{}.Install(handler)
	return handler
}

// runs reports whether the process runs a shard, or is about to.
func runs(fleet *flotilla.Fleet) bool {
	member := fleet.Member()
	if member == nil {
		return false
	}
	for _, s := range member.Shards() {
		if s.Running {
			return true
		}
	}
	return false
}
