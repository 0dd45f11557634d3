package app

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/klog/v2"
)

// lookupPatience is less than what the startup probe in deploy/ allows, and longer than most
// outages. A process that gives up is started again only after the kubelet's back-off, which grows
// to 5 min.
const lookupPatience = 10 * time.Minute

// awaitLookup waits until the API server is healthy, if the process has to look up there how
// requests to it are authenticated. The look-up is made once, and ends the process if it fails: in
// an outage all members would end again and again, and the kubelet would start all of them minutes
// after the outage. If the API server stays away, the look-up says so.
func (o *Options) awaitLookup(ctx context.Context) {
	if !o.looksUp() {
		return
	}
	config, err := clientcmd.BuildConfigFromFlags(o.Master, o.Generic.ClientConnection.Kubeconfig)
	if err != nil {
		return
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return
	}
	for began := time.Now(); time.Since(began) < lookupPatience; {
		if err = genericcontrollermanager.WaitForAPIServer(client, apiServerPatience); err == nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Waiting for the API server, to look up how requests are authenticated", "server", config.Host)
	}
}

// looksUp reports whether the process cannot start without a look-up.
func (o *Options) looksUp() bool {
	a := o.Authentication
	switch {
	case a == nil, a.SkipInClusterLookup, a.TolerateInClusterLookupFailure, a.ClientCert.ClientCA != "" && a.RequestHeader.ClientCAFile != "":
		return false
	case a.RemoteKubeConfigFile != "":
		return true
	}
	_, err := restclient.InClusterConfig()
	return err == nil
}
