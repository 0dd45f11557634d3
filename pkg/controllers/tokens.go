package controllers

import (
	"context"
	"fmt"
	"os"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	kubectrlmgrconfig "k8s.io/kubernetes/pkg/controller/apis/config"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// tokensController is upstream's serviceaccount-token controller. Upstream does not export the
// constructor that takes a client builder, so this is the one controller that is put together here.
type tokensController struct {
	*serviceaccountcontroller.TokensController
	workers int
}

// Name implements app.Controller.
func (c tokensController) Name() string { return names.ServiceAccountTokenController }

// Run implements app.Controller.
func (c tokensController) Run(ctx context.Context) { c.TokensController.Run(ctx, c.workers) }

// newTokensController returns nil, as upstream does, if no private key is given. It uses the root
// identity: without this controller the others have none.
func newTokensController(ctx context.Context, shard app.ControllerContext, root clientbuilder.ControllerClientBuilder) (app.Controller, error) {
	ctx = klog.NewContext(ctx, klog.LoggerWithName(klog.FromContext(ctx), names.ServiceAccountTokenController))
	generator, ca, err := signing(shard.ComponentConfig)
	if err != nil {
		return nil, err
	}
	if generator == nil {
		klog.FromContext(ctx).Info("Controller is disabled because there is no private key", "controller", names.ServiceAccountTokenController)
		return nil, nil
	}
	if ca == nil {
		config, err := root.Config("tokens-controller")
		if err != nil {
			return nil, err
		}
		ca = config.CAData
	}
	client, err := root.Client("tokens-controller")
	if err != nil {
		return nil, err
	}
	controller, err := serviceaccountcontroller.NewTokensController(
		klog.FromContext(ctx),
		shard.InformerFactory.Core().V1().ServiceAccounts(),
		shard.InformerFactory.Core().V1().Secrets(),
		client,
		serviceaccountcontroller.TokensControllerOptions{TokenGenerator: generator, RootCA: ca},
	)
	if err != nil {
		return nil, err
	}
	return tokensController{controller, int(shard.ComponentConfig.SAController.ConcurrentSATokenSyncs)}, nil
}

// signing reads the files that tokens are signed with. The generator is nil if no key is
// configured, the CA if no file is.
func signing(c kubectrlmgrconfig.KubeControllerManagerConfiguration) (serviceaccount.TokenGenerator, []byte, error) {
	keyFile, caFile := c.SAController.ServiceAccountKeyFile, c.SAController.RootCAFile
	if keyFile == "" {
		return nil, nil, nil
	}
	key, err := keyutil.PrivateKeyFromFile(keyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--service-account-private-key-file %q must be a readable PEM file with an RSA or ECDSA private key: %w", keyFile, err)
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return nil, nil, fmt.Errorf("--service-account-private-key-file %q cannot sign tokens: %w", keyFile, err)
	}
	if caFile == "" {
		return generator, nil, nil
	}
	ca, err := rootCA(caFile)
	return generator, ca, err
}

// rootCA reads the certificate of the API server's CA for the tokens' secrets and the config maps
// in all namespaces.
func rootCA(file string) ([]byte, error) {
	ca, err := os.ReadFile(file)
	if err == nil {
		_, err = certutil.ParseCertsPEM(ca)
	}
	if err != nil {
		return nil, fmt.Errorf("--root-ca-file %q must be a readable PEM file with at least one certificate: %w", file, err)
	}
	return ca, nil
}
