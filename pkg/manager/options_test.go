package manager

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

// TestOptionsAreChecked changes options to values that a shard's Manager cannot have.
func TestOptionsAreChecked(t *testing.T) {
	for want, change := range map[string]func(*manager.Options){
		"":                           func(o *manager.Options) { o.Controller.MaxConcurrentReconciles = 4 },
		"option LeaderElection ":     func(o *manager.Options) { o.LeaderElection = true },
		"option Metrics.BindAddress": func(o *manager.Options) { o.Metrics.BindAddress = ":8080" },
		"HealthProbeBindAddress":     func(o *manager.Options) { o.HealthProbeBindAddress = ":8081" },
		"PprofBindAddress":           func(o *manager.Options) { o.PprofBindAddress = ":8082" },
		"WebhookServer":              func(o *manager.Options) { o.WebhookServer = webhook.NewServer(webhook.Options{}) },
		//lint:ignore SA1019 it is refused
		"EventBroadcaster":                         func(o *manager.Options) { o.EventBroadcaster = record.NewBroadcaster() },
		"NewCache":                                 func(o *manager.Options) { o.NewCache = cache.New },
		"SkipNameValidation":                       func(o *manager.Options) { o.Controller.SkipNameValidation = nil },
		"GracefulShutdownTimeout":                  func(o *manager.Options) { o.GracefulShutdownTimeout = ptr.To(time.Second) },
		`DefaultNamespaces is ["a"]`:               func(o *manager.Options) { o.Cache.DefaultNamespaces = map[string]cache.Config{"a": {}} },
		"DefaultTransform":                         func(o *manager.Options) { o.Cache.DefaultTransform = cache.TransformStripManagedFields() },
		"ByObject[*v1.Secret].Transform must not":  byObject(cache.ByObject{Transform: cache.TransformStripManagedFields()}),
		`ByObject[*v1.Secret].Namespaces is ["a"]`: byObject(cache.ByObject{Namespaces: map[string]cache.Config{"a": {}}}),
		`ByObject[*v1.Secret].Field is "type=x"`:   byObject(cache.ByObject{Field: fields.OneTermEqualSelector("type", "x")}),
		`DefaultFieldSelector is "a=b"`:            func(o *manager.Options) { o.Cache.DefaultFieldSelector = fields.OneTermEqualSelector("a", "b") },
		"Client.HTTPClient":                        func(o *manager.Options) { o.Client.HTTPClient = http.DefaultClient },
		"Client.Cache.Reader": func(o *manager.Options) {
			o.Client.Cache = &client.CacheOptions{Reader: struct{ client.Reader }{}}
		},
		"EnableReadYourWritesConsistency": func(o *manager.Options) {
			o.Client.Cache = &client.CacheOptions{EnableReadYourWritesConsistency: ptr.To(true)}
		},
	} {
		o := Options(&flotilla.Shard{}, nil)
		change(&o)
		err := check(o)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want it to name %q", err, want)
		}
	}
	o := Options(&flotilla.Shard{}, nil)
	o.LeaderElection, o.PprofBindAddress = true, ":8082"
	if err := check(o); err == nil || !strings.Contains(err.Error(), "LeaderElection") || !strings.Contains(err.Error(), "Pprof") {
		t.Errorf("the error is %v, want it to name both options", err)
	}
}

func byObject(by cache.ByObject) func(*manager.Options) {
	return func(o *manager.Options) { o.Cache.ByObject = map[client.Object]cache.ByObject{&corev1.Secret{}: by} }
}

// TestSelectorsAreAllowed uses selectors that the process can apply.
func TestSelectorsAreAllowed(t *testing.T) {
	o := Options(&flotilla.Shard{}, nil)
	o.Cache.DefaultLabelSelector = labels.Nothing()
	o.Cache.DefaultFieldSelector = fields.OneTermNotEqualSelector("metadata.namespace", "kube-system")
	byObject(cache.ByObject{Label: labels.Nothing(), Field: fields.OneTermEqualSelector("metadata.name", "a")})(&o)
	if err := check(o); err != nil {
		t.Error(err)
	}
}

// TestWebhooksOfAShardAreRefused uses a setup function that would serve webhooks from each shard.
func TestWebhooksOfAShardAreRefused(t *testing.T) {
	g := &deferringManager{}
	if err := g.misuse(); err != nil {
		t.Error(err)
	}
	g.GetWebhookServer().Register("/validate", http.NotFoundHandler())
	g.GetWebhookServer().Register("/mutate", http.NotFoundHandler())
	if err := g.misuse(); err == nil {
		t.Error("no error")
	}
}

// TestCloseOfWhatWasNeverStarted checks that Close returns, and that nothing can be started after
// it.
func TestCloseOfWhatWasNeverStarted(t *testing.T) {
	m := newShardManager(t.Context(), nil)
	m.warmups = append(m.warmups, make(chan struct{})) // of a controller that was set up
	m.Close()
	m.Close()
	if err := m.Warm(t.Context()); !errors.Is(err, errEnded) {
		t.Errorf("Warm of what was closed returned %v, want that it has ended", err)
	}
	if m.ctx.Err() == nil {
		t.Error("the Manager's context goes on")
	}
}
