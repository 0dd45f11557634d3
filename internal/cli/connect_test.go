package cli

import (
	"bytes"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"k8s.io/client-go/rest"
)

// recordingServer is an API server without any Lease that records its requests.
type recordingServer struct {
	*httptest.Server
	last *http.Request
}

func newRecordingServer(t *testing.T) *recordingServer {
	t.Helper()
	a := &recordingServer{}
	a.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.last = r
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{},"items":[]}`))
	}))
	t.Cleanup(a.Close)
	return a
}

// execute runs a command that connects as the flags say.
func execute(t *testing.T, args ...string) error {
	t.Helper()
	root := &cobra.Command{Use: "flotilla", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Commands(Config{Check: acceptAll})...)
	root.SetOut(&bytes.Buffer{})
	root.SetErr(&bytes.Buffer{})
	root.SetArgs(args)
	return root.ExecuteContext(t.Context())
}

// TestConnectionFlags passes kubectl's flags to a command, with a kubeconfig and without one.
func TestConnectionFlags(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	first, second := newRecordingServer(t), newRecordingServer(t)
	file := filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"a",
"contexts":[{"name":"a","context":{"cluster":"one","user":"ann","namespace":"ignored"}}],
"clusters":[{"name":"one","cluster":{"server":"` + first.URL + `","insecure-skip-tls-verify":true}},{"name":"two","cluster":{"server":"` + second.URL + `","insecure-skip-tls-verify":true}}],
"users":[{"name":"ann","user":{"token":"of-ann"}},{"name":"bob","user":{"token":"of-bob"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	authority := filepath.Join(t.TempDir(), "ca.crt")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: second.Certificate().Raw}
	if err := os.WriteFile(authority, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args      string
		server    *recordingServer
		namespace string
		headers   map[string]string
	}{
		{"--kubeconfig FILE", first, "kube-system", map[string]string{"Authorization": "Bearer of-ann", "Impersonate-User": ""}},
		{"--kubeconfig FILE --user bob --cluster two", second, "kube-system", map[string]string{"Authorization": "Bearer of-bob"}},
		{"--kubeconfig FILE -n fleets", first, "fleets", nil},
		{"--kubeconfig FILE --leader-elect-resource-namespace=fleets", first, "fleets", nil},
		{"--kubeconfig FILE --token=mine --as=carl --as-group=ops --as-uid=7", first, "kube-system",
			map[string]string{"Authorization": "Bearer mine", "Impersonate-User": "carl", "Impersonate-Group": "ops", "Impersonate-Uid": "7"}},
		{"-s SECOND --token=mine --certificate-authority=AUTHORITY", second, "kube-system", map[string]string{"Authorization": "Bearer mine"}},
		{"--server=SECOND --username=u --password=p --insecure-skip-tls-verify", second, "kube-system", map[string]string{"Authorization": "Basic dTpw"}},
	} {
		t.Run(test.args, func(t *testing.T) {
			first.last, second.last = nil, nil
			args := strings.NewReplacer("FILE", file, "SECOND", second.URL, "AUTHORITY", authority).Replace(test.args)
			if err := execute(t, append([]string{"status", "--once"}, strings.Fields(args)...)...); err != nil {
				t.Fatal(err)
			}
			got := test.server.last
			if got == nil {
				t.Fatal("another server got the request, or none did")
			}
			if want := "/apis/coordination.k8s.io/v1/namespaces/" + test.namespace + "/leases"; got.URL.Path != want {
				t.Errorf("%s was requested, want %s", got.URL.Path, want)
			}
			for name, want := range test.headers {
				if value := got.Header.Get(name); value != want {
					t.Errorf("%s is %q, want %q", name, value, want)
				}
			}
		})
	}
	for args, want := range map[string]string{
		"-n a --leader-elect-resource-namespace=b": `--namespace "a"`, "-n Big_Name": `"Big_Name"`,
		"--kubeconfig FILE --as-group=ops": "impersonating", "--kubeconfig FILE --cluster=three": "three",
		"--kubeconfig FILE --certificate-authority=/nowhere/ca": "/nowhere/ca",
	} {
		args = strings.Replace(args, "FILE", file, 1)
		if err := execute(t, append([]string{"status", "--once"}, strings.Fields(args)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s in it", args, err, want)
		}
	}
}

// TestImpersonateAsPod checks that impersonation works with any credentials.
func TestImpersonateAsPod(t *testing.T) {
	var target Target
	command := &cobra.Command{}
	target.addFlags(command)
	if err := command.ParseFlags([]string{"--as=carl", "--as-group=ops"}); err != nil {
		t.Fatal(err)
	}
	ofPod := &rest.Config{BearerTokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token"}
	target.impersonate(ofPod)
	if as := ofPod.Impersonate; as.UserName != "carl" || !slices.Equal(as.Groups, []string{"ops"}) {
		t.Errorf("impersonates %+v", as)
	}
}

// TestEveryCommandConnectsAlike checks that each command has kubectl's connection flags, except
// audit, which does not connect.
func TestEveryCommandConnectsAlike(t *testing.T) {
	flags := []string{
		"as", "as-group", "as-uid", "certificate-authority", "client-certificate", "client-key", "cluster", "context",
		"disable-compression", "insecure-skip-tls-verify", "kubeconfig", "namespace", "password", "proxy-url", "request-timeout",
		"server", "tls-server-name", "token", "user", "username",
	}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			visit(sub)
		}
		if c.HasSubCommands() || c.Name() == "audit" {
			return
		}
		for _, name := range flags {
			if c.Flags().Lookup(name) == nil {
				t.Errorf("%s has no flag --%s", c.CommandPath(), name)
			}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s says nothing of its flag --%s", c.CommandPath(), f.Name)
			}
		})
	}
	root := &cobra.Command{Use: "flotilla"}
	root.AddCommand(Commands(Config{Check: acceptAll})...)
	visit(root)
}
