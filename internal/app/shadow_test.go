package app

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// TestBadShadowFlags checks that flags of a shadow that cannot work are refused.
func TestBadShadowFlags(t *testing.T) {
	requireRefusals(t, []bad{
		{"more than there are", []string{"--shadow=5/4"}, []string{"5/4", "--shadow", "K/N"}},
		{"no part", []string{"--shadow=yes"}, []string{"yes", "--shadow", "1/4"}},
		{"too many", []string{"--shadow=1/1000"}, []string{"1/1000", "256"}},
		{"rights without a shadow", []string{"--shadow-rights-of=u"}, []string{"--shadow-rights-of", `"u"`, "--shadow"}},
	})
	for _, flags := range [][]string{{"--shadow"}, {"--shadow=2/3", "--shadow-rights-of=u"}, {"--shadow", "--leader-elect=false"}, {"--shadow", "--leader-lock=none"}} {
		if err := refusal(t, flags); err != nil {
			t.Errorf("%q: %v", flags, err)
		}
	}
}

// TestShadeCoversEveryClient checks that no client sends a write, neither upstream's nor one that
// is made from the process's configuration. Nothing may mint tokens.
func TestShadeCoversEveryClient(t *testing.T) {
	var sent atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { sent.Add(1); w.WriteHeader(http.StatusTeapot) }))
	defer server.Close()
	config := clientcmdapi.NewConfig()
	config.Clusters["server"] = &clientcmdapi.Cluster{Server: server.URL + "/k8s/"}
	config.Contexts["server"] = &clientcmdapi.Context{Cluster: "server"}
	config.CurrentContext = "server"
	file := write(t, "kubeconfig", "")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	o, err := NewOptions()
	if err != nil {
		t.Fatal(err)
	}
	o.Generic.ClientConnection.Kubeconfig = file
	o.SecureServing.BindPort = 0
	o.KubeCloudShared.UseServiceAccountCredentials = true
	if err := o.Fleet.Shadow.Set("1/2"); err != nil {
		t.Fatal(err)
	}
	c, err := o.complete(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.EventBroadcaster.Shutdown()
	s, err := newShade(c, o)
	if err != nil {
		t.Fatal(err)
	}
	for name, client := range map[string]kubernetes.Interface{"upstream's": c.Client, "a new one": kubernetes.NewForConfigOrDie(c.Kubeconfig), "the one for rights": kubernetes.NewForConfigOrDie(s.questions)} {
		if _, err := client.CoreV1().Pods("a").Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("%s writes: %v", name, err)
		}
	}
	if n := sent.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	if _, err := c.Client.CoreV1().Pods("a").Get(t.Context(), "p", metav1.GetOptions{}); err == nil || sent.Load() != 1 {
		t.Errorf("a read was not sent: %v", err)
	}
	if c.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials || !s.mints {
		t.Error("tokens would be minted")
	}
}

// TestAccounts checks that clients of controllers have service accounts, and those of the process
// have none.
func TestAccounts(t *testing.T) {
	account := accountOf(catalogue.Identities())
	for client, want := range map[string]string{
		"deployment-controller": "system:serviceaccount:kube-system:deployment-controller",
		"shared-informers":      "", "metadata-informers": "", "tokens-controller": "", "fleet-member": "", "-": "",
	} {
		if got := account(client); got != want {
			t.Errorf("%s: %q, want %q", client, got, want)
		}
	}
}

// TestActsOutside checks that exactly two controllers of volumes act outside the cluster.
func TestActsOutside(t *testing.T) {
	var all []string
	for _, row := range catalogue.All() {
		if row.ActsOutside != "" {
			all = append(all, row.Name)
		}
	}
	if want := "persistentvolume-attach-detach-controller,persistentvolume-binder-controller"; strings.Join(slices.Sorted(slices.Values(all)), ",") != want {
		t.Errorf("%v act outside, want %s", all, want)
	}
}
