// A controller-runtime controller that runs as a fleet. See README.md.
package main

import (
	"flag"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	webv1 "example.com/websites/api/v1"
	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/manager"
)

var (
	scheme   = runtime.NewScheme()
	setupLog = ctrl.Log.WithName("setup")
)

func init() {
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(webv1.AddToScheme(scheme))
}

func main() {
	var metricsAddr, probeAddr, namespace, member string
	flag.StringVar(&metricsAddr, "metrics-bind-address", ":8080", "The address the metrics endpoint binds to.")
	flag.StringVar(&probeAddr, "health-probe-bind-address", ":8081", "The address the probe endpoint binds to.")
	flag.StringVar(&namespace, "namespace", os.Getenv("POD_NAMESPACE"), "The namespace of the fleet's Leases.")
	flag.StringVar(&member, "member", os.Getenv("POD_NAME"), "This process's name in the fleet.")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	klog.SetLogger(ctrl.Log)

	// Each process has one of these: metrics, probes, and webhooks if there are any. It must not cut
	// the fleet off, which hands its shards over, and ends the process itself if that takes too
	// long.
	unbounded := time.Duration(-1)
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Scheme:                  scheme,
		Metrics:                 metricsserver.Options{BindAddress: metricsAddr},
		HealthProbeBindAddress:  probeAddr,
		GracefulShutdownTimeout: &unbounded,
	})
	exitOn(err, "unable to start manager")

	// Each shard has its own manager.
	f, err := flotilla.New(mgr.GetConfig(), flotilla.Options{
		Fleet: "websites", Namespace: namespace, Member: member, Registerer: metrics.Registry, MetricPrefix: "websites",
	})
	exitOn(err, "unable to make the fleet")
	f.Namespaced("website", manager.Build(scheme, func(mgr ctrl.Manager) error {
		return (&WebsiteReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}).SetupWithManager(mgr)
	}))

	exitOn(mgr.Add(ctrlmanager.RunnableFunc(f.Run)), "unable to add the fleet")
	exitOn(mgr.AddHealthzCheck("healthz", func(*http.Request) error { return f.Live() }), "unable to set up health check")
	exitOn(mgr.AddReadyzCheck("readyz", func(*http.Request) error { return f.Ready() }), "unable to set up ready check")
	setupLog.Info("starting manager")
	exitOn(mgr.Start(ctrl.SetupSignalHandler()), "problem running manager")
}

func exitOn(err error, what string) {
	if err != nil {
		setupLog.Error(err, what)
		os.Exit(1)
	}
}
