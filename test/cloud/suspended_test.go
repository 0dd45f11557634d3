package cloud

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"

	pkgcloud "github.com/flotilla-kube/flotilla/pkg/cloud"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/test/cloud/provider"
	"github.com/flotilla-kube/flotilla/test/cloud/sky"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// nap simulates the suspension of a member within this process: its clock stands still and it
// cannot reach the API server. If a real process were suspended, it would depend on chance whether
// it sends a request after it wakes up and before it ends.
type nap struct {
	election.Clock

	mu     sync.Mutex
	asleep bool
	since  time.Time
}

func (n *nap) Now() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.asleep {
		return n.since
	}
	return n.Clock.Now()
}

func (n *nap) set(asleep bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asleep, n.since = asleep, n.Clock.Now()
}

func (n *nap) wrap(rt http.RoundTripper) http.RoundTripper { return napTransport{n, rt} }

type napTransport struct {
	nap  *nap
	next http.RoundTripper
}

var errAsleep = errors.New("asleep")

func (t napTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

func (t napTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.nap.mu.Lock()
	asleep := t.nap.asleep
	t.nap.mu.Unlock()
	if asleep {
		if req.Body != nil {
			_ = req.Body.Close()
		}
		return nil, errAsleep
	}
	return t.next.RoundTrip(req)
}

// TestASuspendedMemberIsFenced suspends a member that has looked for a load balancer, found none,
// and is about to create one. Another member then creates it. With the fence in the provider's
// transport the first member creates no second one when it wakes up. Without the fence, the judge
// convicts it. Nothing else stops the member: the provider's requests outlive the context of their
// call, and the process does not end.
func TestASuspendedMemberIsFenced(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{true, false} {
		t.Run(map[bool]string{true: "fenced", false: "without"}[fenced], func(t *testing.T) {
			t.Parallel()
			found := suspend(t, fenced)
			if fenced && len(found) > 0 {
				t.Errorf("the judge found %q", found)
			}
			if !fenced && (len(found) == 0 || !strings.Contains(found[0], "duplicate")) {
				t.Errorf(
					"the judge found %q, not the second load balancer of a member without a "+
						"fence",
					found,
				)
			}
		})
	}
}

// suspend returns the judge's findings.
func suspend(t *testing.T, fenced bool) []string {
	w, ctx := newCluster(t), t.Context()
	sleeper := &nap{Clock: election.NewClock()}
	ended := w.runHere(t, "sleeper", sleeper, provider.Config{Fenced: fenced, Careless: true})
	harness.Eventually(t, harness.Patience, "the nodes are initialized", w.NodesInitialized)

	service := Names("suspended", 1, 1)
	must(t, w.AddNamespaces(ctx, service))
	looked, answer := w.Sky.Block(func(c sky.Call) bool {
		return c.Client == "sleeper" && c.UID != "" && !c.Writes()
	})
	defer answer()
	must(t, w.AddServices(ctx, service))
	select {
	case <-looked:
	case <-time.After(harness.Patience):
		t.Fatal("the member has not looked for the load balancer")
	}
	sleeper.set(true)
	w.member(t, "awake", "--shards=1")
	harness.Eventually(
		t, harness.Patience, "the other member has made the load balancer", w.Addressed(service),
	)

	sleeper.set(false)
	answer()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the suspended member has not noticed")
		}
	case <-time.After(harness.Patience):
		t.Fatal("the suspended member goes on")
	}
	must(t, w.Serve(ctx, service))
	must(t, w.Answered(ctx, service))
	found, err := w.Judge(ctx)
	must(t, err)
	return found
}

// runHere runs a member in this process until the end of the test. The channel delivers what Run
// returns.
func (w *Cluster) runHere(t *testing.T, name string, sleeper *nap, c provider.Config) <-chan error {
	t.Helper()
	completed := w.configHere(t, Spec{Name: name, Config: c})
	completed.Kubeconfig.Wrap(sleeper.wrap)
	generic := completed.ComponentConfig.Generic.LeaderElection
	fleet, err := flotilla.New(completed.Kubeconfig, flotilla.Options{
		Fleet: "flotilla-cloud", Namespace: generic.ResourceNamespace, Member: name,
		Ranges: 1, LeaderLocks: []string{generic.ResourceName},
		Timing: election.Timing{
			LeaseDuration: generic.LeaseDuration.Duration,
			RenewDeadline: generic.RenewDeadline.Duration,
			RetryPeriod:   generic.RetryPeriod.Duration,
		},
		RebalanceDelay: flotilla.Never, ReplanInterval: flotilla.Never,
		Clock: sleeper,
		Exit:  func(reason string) { t.Log("the process would have ended: " + reason) },
	})
	must(t, err)
	c.URL, c.Token = w.Sky.URL(), name
	must(t, pkgcloud.Add(t.Context(), fleet, pkgcloud.Controllers{
		Config: completed, Cloud: provider.New(c), Constructors: app.DefaultInitFuncConstructors,
	}))
	ctx, stop := context.WithCancel(t.Context())
	result, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		result <- fleet.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
	return result
}

// configHere returns upstream's configuration from the same flags that processes get.
func (w *Cluster) configHere(t *testing.T, spec Spec) *config.CompletedConfig {
	t.Helper()
	file, err := w.CloudConfig(spec)
	must(t, err)
	o, err := options.NewCloudControllerManagerOptions()
	must(t, err)
	known, off := app.ControllerNames(
		app.DefaultInitFuncConstructors,
	), app.ControllersDisabledByDefault.List()
	flags := pflag.NewFlagSet("here", pflag.ContinueOnError)
	for _, section := range o.Flags(known, off, names.CCMControllerAliases(), nil, nil).FlagSets {
		flags.AddFlagSet(section)
	}
	must(
		t,
		flags.Parse(
			append(append(w.Flags(file), timings...), "--secure-port=0", "--webhook-secure-port=0"),
		),
	)
	c, err := o.Config(known, off, names.CCMControllerAliases(), nil, nil)
	must(t, err)
	return c.Complete()
}
