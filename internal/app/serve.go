package app

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/statusz"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/metrics/prometheus/slis"
	zpagesfeatures "k8s.io/component-base/zpages/features"
	genericcontrollermanager "k8s.io/controller-manager/app"
	configv1alpha1 "k8s.io/kube-controller-manager/config/v1alpha1"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	configv1alpha1conversion "k8s.io/kubernetes/pkg/controller/apis/config/v1alpha1"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
)

// component is the name that upstream's pages show and that tools look for. In a leader migration's
// configuration it names the controller manager.
const component = "kube-controller-manager"

// publishConfig puts the configuration on /configz, in upstream's words.
func publishConfig(c *config.CompletedConfig) error {
	external := &configv1alpha1.KubeControllerManagerConfiguration{}
	if err := configv1alpha1conversion.Convert_config_KubeControllerManagerConfiguration_To_v1alpha1_KubeControllerManagerConfiguration(&c.ComponentConfig, external, nil); err != nil {
		return fmt.Errorf("converting the configuration for /configz: %w", err)
	}
	external.SetGroupVersionKind(configv1alpha1.SchemeGroupVersion.WithKind("KubeControllerManagerConfiguration"))
	page, err := configz.New(kcm.ConfigzName)
	if err != nil {
		return fmt.Errorf("registering /configz: %w", err)
	}
	return page.Set(external)
}

// serve starts the secure port and returns a channel that is closed once it has stopped, after stop
// was closed. Without a secure port it serves nothing.
func serve(c *config.CompletedConfig, endpoints *controllers.Endpoints, fleetPage http.Handler, shade *shade, probes *probes, stop <-chan struct{}) (<-chan struct{}, error) {
	if c.SecureServing == nil {
		stopped := make(chan struct{})
		close(stopped)
		return stopped, nil
	}
	handler := genericcontrollermanager.BuildHandlerChain(routes(c, endpoints, fleetPage, shade, probes), &c.Authorization, &c.Authentication)
	stopped, _, err := c.SecureServing.Serve(handler, 0, stop)
	return stopped, err
}

// fleetPath is the status page. As with /metrics, a client needs the right to get this path.
const fleetPath = "/fleet"

// completePath answers 200 while this process runs everything that it should run. /readyz does not
// show that: it keeps a member ready while it takes over.
const completePath = "/completez"

// shadowPath is a shadow's report, under the same rule.
const shadowPath = "/shadow"

// routes are upstream's, with health checks and debug handlers that come and go, /livez, /readyz
// and /completez in addition to /healthz, and the fleet's status page.
func routes(c *config.CompletedConfig, endpoints *controllers.Endpoints, fleetPage http.Handler, shade *shade, probes *probes) http.Handler {
	m := genericcontrollermanager.NewBaseHandler(&c.ComponentConfig.Generic.Debugging, endpoints.Healthz())
	m.UnlistedHandlePrefix("/healthz/", endpoints.Healthz())
	m.UnlistedHandlePrefix("/debug/controllers/", endpoints.Debug())
	healthz.InstallLivezHandler(m, healthz.PingHealthz, healthz.NamedCheck("fleet", func(*http.Request) error { return probes.isLive() }))
	healthz.InstallReadyzHandler(m, healthz.PingHealthz, healthz.NamedCheck("fleet", func(*http.Request) error { return probes.isReady() }))
	healthz.InstallPathHandler(m, completePath, healthz.NamedCheck("fleet", func(*http.Request) error { return probes.isComplete() }))
	slis.SLIMetricsWithReset{}.Install(m)
	m.Handle(fleetPath, fleetPage)
	if shade != nil {
		m.Handle(shadowPath, shade.reporter)
	}
	if utilfeature.DefaultFeatureGate.Enabled(zpagesfeatures.ComponentFlagz) && c.Flagz != nil {
		flagz.Install(m, component, c.Flagz)
	}
	if utilfeature.DefaultFeatureGate.Enabled(zpagesfeatures.ComponentStatusz) {
		installStatusz(m, c)
	}
	return m
}

func installStatusz(m *mux.PathRecorderMux, c *config.CompletedConfig) {
	statusz.Install(m, component, statusz.NewRegistry(
		c.ComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent),
		statusz.WithListedPaths(m.ListedPaths()),
	))
}

var errNotReady = errors.New("waiting for the API server")

const (
	// electionName is upstream's name of the health check of its election.
	electionName = "leaderElection"
	// electionTolerance is how long after the end of a lease duration upstream's check reports that
	// a leader has not renewed.
	electionTolerance = 20 * time.Second
)

// probes are what /readyz, /completez, /livez and /healthz/leaderElection read, set once there is
// something to read. Until then the process is live and not ready.
type probes struct {
	ready, complete, live, renewing atomic.Pointer[func() error]
}

func (p *probes) set(ready, complete, live, renewing func() error) {
	p.ready.Store(&ready)
	p.complete.Store(&complete)
	p.live.Store(&live)
	p.renewing.Store(&renewing)
}

// election returns the check that held Leases are renewed. Like the stock controller manager's, it
// fails only for a stuck process.
func (p *probes) election() healthz.HealthChecker {
	return healthz.NamedCheck(electionName, func(*http.Request) error {
		if f := p.renewing.Load(); f != nil {
			return (*f)()
		}
		return nil
	})
}

func (p *probes) isReady() error { return orNotReady(&p.ready) }

func (p *probes) isComplete() error { return orNotReady(&p.complete) }

func orNotReady(check *atomic.Pointer[func() error]) error {
	if f := check.Load(); f != nil {
		return (*f)()
	}
	return errNotReady
}

func (p *probes) isLive() error {
	if f := p.live.Load(); f != nil {
		return (*f)()
	}
	return nil
}
