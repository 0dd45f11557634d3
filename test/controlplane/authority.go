package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Clocks do not differ on one machine, but some checks are exact to the second.
const (
	certificateBackdate = time.Minute
	certificateLifetime = 7 * 24 * time.Hour
)

// authority is the cluster's only certificate authority. envtest has one for clients and one for
// the server, but exposes neither key. A controller manager needs a signer that the API server
// trusts.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  crypto.Signer
}

var _ envtest.Authn = &authority{}

// newAuthority writes ca.crt, ca.key and the service-account key pair sa.key, sa.pub to dir, unless
// they exist.
func newAuthority(dir string) (*authority, error) {
	if _, err := os.Stat(filepath.Join(dir, "ca.key")); err == nil {
		return loadAuthority(dir)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "flotilla-controlplane"}, key)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, cert: certificate, key: key}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(a.keyFile(), keyPEM, 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(a.certFile(), a.certPEM(), 0o644); err != nil {
		return nil, err
	}
	return a, a.writeServiceAccountKeys()
}

// loadAuthority reads the files that newAuthority wrote.
func loadAuthority(dir string) (*authority, error) {
	a := &authority{dir: dir}
	certificates, err := cert.CertsFromFile(a.certFile())
	if err != nil {
		return nil, err
	}
	key, err := keyutil.PrivateKeyFromFile(a.keyFile())
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: a %T cannot sign", a.keyFile(), key)
	}
	a.cert, a.key = certificates[0], signer
	return a, nil
}

func (a *authority) certFile() string                { return filepath.Join(a.dir, "ca.crt") }
func (a *authority) keyFile() string                 { return filepath.Join(a.dir, "ca.key") }
func (a *authority) serviceAccountKeyFile() string   { return filepath.Join(a.dir, "sa.key") }
func (a *authority) serviceAccountPublicKey() string { return filepath.Join(a.dir, "sa.pub") }

func (a *authority) certPEM() []byte { return encodeCertificate(a.cert.Raw) }

func (a *authority) writeServiceAccountKeys() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(a.serviceAccountKeyFile(), keyPEM, 0o600); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return os.WriteFile(a.serviceAccountPublicKey(), publicPEM, 0o644)
}

// issue signs a certificate for a new key and returns both as PEM.
func (a *authority) issue(template x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template.NotBefore = now.Add(-certificateBackdate)
	template.NotAfter = now.Add(certificateLifetime)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, err
	}
	return encodeCertificate(der), keyPEM, nil
}

// writeServingCertificate writes the API server's certificate under the names that it looks for in
// its --cert-dir. envtest does not overwrite them.
func (a *authority) writeServingCertificate(dir string) error {
	certPEM, keyPEM, err := a.issueServing("kube-apiserver")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "apiserver.key"), keyPEM, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "apiserver.crt"), certPEM, 0o644)
}

// issueServing signs a certificate for a server at the API server's address.
func (a *authority) issueServing(commonName string) (certPEM, keyPEM []byte, err error) {
	return a.issue(x509.Certificate{
		Subject:     pkix.Name{CommonName: commonName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local",
		},
	})
}

// Configure implements envtest.Authn: it makes the API server accept client certificates of this
// authority.
func (a *authority) Configure(_ string, args *envtest.Arguments) error {
	args.Set("client-ca-file", a.certFile())
	return nil
}

// Start implements envtest.Authn.
func (a *authority) Start() error { return nil }

// Stop implements envtest.Authn.
func (a *authority) Stop() error { return nil }

// AddUser implements envtest.Authn. It returns a copy of base with a client certificate for the
// user.
func (a *authority) AddUser(user envtest.User, base *rest.Config) (*rest.Config, error) {
	certPEM, keyPEM, err := a.issue(x509.Certificate{
		Subject:     pkix.Name{CommonName: user.Name, Organization: user.Groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, fmt.Errorf("certificate for user %s: %w", user.Name, err)
	}
	config := rest.CopyConfig(base)
	config.CertData, config.KeyData = certPEM, keyPEM
	return config, nil
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}
