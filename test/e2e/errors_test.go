package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// loggedError is a line of level error or above.
var loggedError = regexp.MustCompile(`(?m)^[EF]\d{4} .*$`)

// logsAnyway is what every component of this version of Kubernetes logs as an error when it starts
// without --allow-metric-labels-manifest.
var logsAnyway = regexp.MustCompile(` options\.go:\d+\] The manifest file is empty, ignoring\.$`)

// TestHealthyStartLogsNoError starts a fleet, and a member that takes half of it over, and looks
// for errors in their logs. The API server has what those of real clusters have and the tests'
// other ones do without: an authority for aggregated API servers, for which each component looks.
func TestHealthyStartLogsNoError(t *testing.T) {
	t.Parallel()
	plan, err := controllers.DefaultPlan(defaultShards)
	if err != nil {
		t.Fatal(err)
	}
	plane := startPlane(t, controlplane.Options{Nodes: 3, Scheduler: true, APIServerArgs: []string{"--requestheader-client-ca-file=" + newAuthority(t)}})
	f := &fleetRun{
		plane: plane, plan: plan, client: newClient(t, plane), admin: httpClient(t, plane.AdminConfig()), members: map[string]*manager{},
	}
	anonymous := httpClient(t, rest.AnonymousClientConfig(plane.AdminConfig()))
	for _, name := range []string{"fleet-0", "fleet-1"} {
		f.members[name] = startMember(t, plane, name, "--rebalance-delay=1s")
		// A certificate that is shown to a member before it has read the authority is an error there.
		eventually(t, leaseDuration+patience, name+" is ready", f.members[name].answers(anonymous, "/readyz", http.StatusOK))
		f.settle(t, leaseDuration+patience)
	}
	for name, m := range f.members {
		for _, line := range loggedError.FindAllString(m.log(t), -1) {
			if !logsAnyway.MatchString(line) {
				t.Errorf("%s logged an error: %s", name, line)
			}
		}
	}
}

// newAuthority returns the file of an authority's certificate.
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
