package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"k8s.io/client-go/util/cert"
)

// loggedError is a line of level error or above.
var loggedError = regexp.MustCompile(`(?m)^[EF]\d{4} .*$`)

// logsAnyway is an error that every component of this Kubernetes version logs when it starts
// without --allow-metric-labels-manifest.
var logsAnyway = regexp.MustCompile(` options\.go:\d+\] The manifest file is empty, ignoring\.$`)

// requireNoErrors looks for errors in the logs of members that have started and handed over
// cleanly. The API server needs something that real clusters have and the other tests omit: an
// authority for aggregated API servers, which every component looks for.
func (f *fleetRun) requireNoErrors(t *testing.T) {
	t.Helper()
	for name, m := range f.members {
		for _, line := range loggedError.FindAllString(m.MustLog(t), -1) {
			if !logsAnyway.MatchString(line) {
				t.Errorf("%s logged an error: %s", name, line)
			}
		}
	}
}

// newAuthority returns the path of an authority's certificate.
func newAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "front-proxy-ca"}, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "front-proxy-ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: certificate.Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
