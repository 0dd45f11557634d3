package controllers

import (
	"crypto/tls"
	"fmt"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/certificates/signer/config"
	"k8s.io/kubernetes/pkg/volume"
)

// Check finds what constructors of the controllers that this process runs would refuse: the files
// that they read, and flags that only they validate. The error names the flag and the file. A
// constructor that fails leaves its shard without any controller, on whichever member takes it.
func (p *Process) Check() error {
	if err := p.checkFiles(); err != nil {
		return err
	}
	return p.tryConstructors()
}

func (p *Process) checkFiles() error {
	c := p.config.ComponentConfig
	if _, _, err := signing(c); err != nil {
		return err
	}
	runs := func(controller string) bool { return len(p.Runs([]string{controller})) > 0 }
	if file := c.SAController.RootCAFile; file != "" && runs(names.RootCACertificatePublisherController) {
		if _, err := rootCA(file); err != nil {
			return err
		}
	}
	if runs(names.CertificateSigningRequestSigningController) {
		if err := checkSigners(c.CSRSigningController); err != nil {
			return err
		}
	}
	if runs(names.PersistentVolumeBinderController) || runs(names.PersistentVolumeAttachDetachController) || runs(names.PersistentVolumeExpanderController) {
		recyclers := c.PersistentVolumeBinderController.VolumeConfiguration.PersistentVolumeRecyclerConfiguration
		for _, template := range []struct{ flag, file string }{
			{"pv-recycler-pod-template-filepath-hostpath", recyclers.PodTemplateFilePathHostPath},
			{"pv-recycler-pod-template-filepath-nfs", recyclers.PodTemplateFilePathNFS},
		} {
			if err := app.AttemptToLoadRecycler(template.file, &volume.VolumeConfig{}); err != nil {
				return fmt.Errorf("--%s %q must be a readable manifest of a pod with one volume: %w", template.flag, template.file, err)
			}
		}
	}
	return nil
}

// checkSigners checks what certificates are signed with (cmd/kube-controller-manager/app:
// newCertificateSigningRequestSigningController, pkg/controller/certificates/signer:
// newCAProvider).
func checkSigners(c config.CSRSigningControllerConfiguration) error {
	if c.ClusterSigningCertFile != "" && c.ClusterSigningKeyFile != "" {
		return checkSigner("cluster-signing", c.ClusterSigningCertFile, c.ClusterSigningKeyFile)
	}
	for _, signer := range []struct {
		flag  string
		files config.CSRSigningConfiguration
	}{
		{"cluster-signing-kubelet-serving", c.KubeletServingSignerConfiguration},
		{"cluster-signing-kubelet-client", c.KubeletClientSignerConfiguration},
		{"cluster-signing-kube-apiserver-client", c.KubeAPIServerClientSignerConfiguration},
		{"cluster-signing-legacy-unknown", c.LegacyUnknownSignerConfiguration},
	} {
		if signer.files == (config.CSRSigningConfiguration{}) {
			continue
		}
		if err := checkSigner(signer.flag, signer.files.CertFile, signer.files.KeyFile); err != nil {
			return err
		}
	}
	return nil
}

func checkSigner(flag, cert, key string) error {
	certs, err := certutil.CertsFromFile(cert)
	if err == nil && len(certs) != 1 {
		err = fmt.Errorf("it has %d", len(certs))
	}
	if err != nil {
		return fmt.Errorf("--%s-cert-file %q must be a readable PEM file with one certificate: %w", flag, cert, err)
	}
	if _, err = keyutil.PrivateKeyFromFile(key); err != nil {
		return fmt.Errorf("--%s-key-file %q must be a readable PEM file with a private key: %w", flag, key, err)
	}
	if _, err = tls.LoadX509KeyPair(cert, key); err != nil {
		return fmt.Errorf("--%s-key-file %q must be the key of the certificate in --%s-cert-file %q: %w", flag, key, flag, cert, err)
	}
	return nil
}
