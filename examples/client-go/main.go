// A client-go controller that runs as a fleet. See README.md.
package main

import (
	"context"
	"flag"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "The kubeconfig; by default the pod's service account.")
	namespace := flag.String("namespace", os.Getenv("POD_NAMESPACE"), "The namespace of the fleet's Leases.")
	member := flag.String("member", os.Getenv("POD_NAME"), "This process's name in the fleet.")
	listen := flag.String("listen", ":8080", "The address of /metrics, /healthz and /readyz.")
	klog.InitFlags(nil)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // A second signal ends the process at once.

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	exitOn(err)
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	f, err := flotilla.New(config, flotilla.Options{
		Fleet: "pages", Namespace: *namespace, Member: *member, Registerer: prometheus.DefaultRegisterer, MetricPrefix: "pages",
	})
	exitOn(err)
	f.Namespaced("page", func(_ context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		client, err := kubernetes.NewForConfig(s.Config())
		if err != nil {
			return nil, err
		}
		pages, err := s.Informers().Dynamic(pages)
		if err != nil {
			return nil, err
		}
		return newPageController(client, pages, s.Informers().Core().V1().ConfigMaps())
	})
	server := &http.Server{Addr: *listen, Handler: handler(f), ReadHeaderTimeout: 10 * time.Second}
	go func() { exitOn(server.ListenAndServe()) }()
	exitOn(f.Run(ctx))
}

func handler(f *flotilla.Fleet) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.Handler())
	probe := func(check func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := check(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		}
	}
	mux.HandleFunc("/readyz", probe(f.Ready))
	mux.HandleFunc("/healthz", probe(f.Live))
	return mux
}

func exitOn(err error) {
	if err != nil {
		klog.ErrorS(err, "Ending")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}
