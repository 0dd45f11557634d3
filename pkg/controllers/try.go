package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// validating are the controllers whose constructors validate flags, before they send a request, and
// these flags.
var validating = []struct{ controller, flags string }{
	{names.NodeIpamController, "--cluster-cidr, --service-cluster-ip-range and --node-cidr-mask-size"},
	{names.StorageVersionMigratorController, "--enable-garbage-collector and --feature-gates"},
}

// tryConstructors calls the constructors of validating controllers as far as their first request.
// Nothing of what they make is left.
func (p *Process) tryConstructors() error {
	descriptors := app.NewControllerDescriptors()
	for _, v := range validating {
		if len(p.Runs([]string{v.controller})) == 0 {
			continue
		}
		if err := p.tryConstructor(descriptors[v.controller]); err != nil {
			return fmt.Errorf("%s: %s does not accept them; correct them, or leave it out with --controllers=*,-%[2]s: %w", v.flags, v.controller, err)
		}
	}
	return nil
}

func (p *Process) tryConstructor(d *app.ControllerDescriptor) (err error) {
	defer recovered(&err)
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	defer cancel()
	accepted := false
	nowhere := &rest.Config{Host: "http://localhost", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		accepted = true
		cancel() // Some would wait for an API server to answer.
		return nil, errTried
	})}
	client, err := kubernetes.NewForConfig(nowhere)
	if err != nil {
		return err
	}
	_, err = d.BuildController(ctx, app.ControllerContext{
		ComponentConfig: p.config.ComponentConfig,
		ClientBuilder:   trying{clientbuilder.SimpleControllerClientBuilder{ClientConfig: nowhere}},
		InformerFactory: informers.NewSharedInformerFactory(client, 0),
	})
	if accepted || errors.Is(err, errTried) {
		return nil
	}
	return err
}

// errTried ends a constructor that has accepted its flags.
var errTried = errors.New("only the flags are tried")

// trying refuses configurations, and returns clients that reach nothing.
type trying struct {
	clientbuilder.ControllerClientBuilder
}

func (trying) Config(string) (*rest.Config, error) { return nil, errTried }

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
