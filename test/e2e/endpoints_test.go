package e2e

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

const (
	// pages are the feature gates of /flagz and /statusz.
	pages = "--feature-gates=ComponentFlagz=true,ComponentStatusz=true"

	graphOfStock  = "/debug/controllers/garbage-collector-controller/graph"
	graphOfMember = "/debug/controllers/garbage-collector-controller@cluster/garbage/graph"
)

// paths are asked by all callers, and must be answered as the stock controller manager answers them.
var paths = []string{
	"/healthz", "/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz", "/debug/pprof/", "/debug/pprof/cmdline",
	"/debug/flags/v", graphOfStock, "/nonsense",
}

// TestEndpoints compares the secure port of a member with that of the stock controller manager, and reads what is on it.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	plane := startPlane(t, controlplane.Options{})
	callers := newCallers(t, plane)
	master := callers["master"]

	stock := startManager(t, plane, stockName, stockName, pages)
	eventually(t, patience, "stock runs", stock.answers(master, graphOfStock, http.StatusOK))
	eventually(t, patience, "stock has checks", stock.says(master, "/healthz?verbose", "garbage-collector-controller"))
	want, stockChecks := stock.table(t, callers, graphOfStock), stock.checks(t, master)
	stock.stop(t)

	one := startMember(t, plane, "one", append([]string{"--shards=2", pages}, quick...)...)
	t.Run("not ready without shards", func(t *testing.T) {
		eventually(t, patience, "alive", one.answers(master, "/livez", http.StatusOK))
		status, _, err := one.get(t.Context(), callers["anonymous"], "/readyz")
		if err != nil || status != http.StatusInternalServerError {
			t.Errorf("/readyz answers %d, %v", status, err)
		}
		eventually(t, patience, "the reason", one.says(master, "/readyz/fleet", "member one has not joined", "the gate, Lease kube-controller-manager, is held by"))
		eventually(t, patience, "ready", one.answers(callers["anonymous"], "/readyz", http.StatusOK))
	})
	t.Run("same answers as stock", func(t *testing.T) {
		eventually(t, patience, "the collector runs", one.answers(master, graphOfMember, http.StatusOK))
		// The API server is asked who the callers are, and may be slow to answer.
		eventually(t, patience, "the same answers", func(context.Context) error {
			if diff := cmp.Diff(want, one.table(t, callers, graphOfMember)); diff != "" {
				return fmt.Errorf("stock (-), member (+):\n%s", diff)
			}
			return nil
		})
		t.Logf("%d answers are the same as those of the stock controller manager", len(want))
	})
	t.Run("health checks", func(t *testing.T) { requireChecks(t, one, master, stockChecks) })
	t.Run("contents", func(t *testing.T) { requireContents(t, one, master) })
	two := startMember(t, plane, "two", append([]string{"--shards=2", pages}, quick...)...)
	t.Run("moved shards", func(t *testing.T) { requireMoved(t, one, two, master) })
}

// newCallers returns who asks: nobody, somebody without any right, and somebody who may read.
func newCallers(t *testing.T, plane *controlplane.ControlPlane) map[string]*http.Client {
	t.Helper()
	client := newClient(t, plane)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(t.Context(), "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "readers-of-secure-port"},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"*"}, Verbs: []string{"get"}}},
	}
	if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: "reader"}},
	}
	if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	stranger, err := plane.ConfigFor("stranger")
	if err != nil {
		t.Fatal(err)
	}
	withToken := func(token string) *http.Client {
		config := rest.AnonymousClientConfig(plane.AdminConfig())
		config.BearerToken = token
		return httpClient(t, config)
	}
	return map[string]*http.Client{
		"anonymous":   httpClient(t, rest.AnonymousClientConfig(plane.AdminConfig())),
		"wrong token": withToken("nonsense"),
		"reader":      withToken(token.Status.Token),
		"stranger":    httpClient(t, stranger),
		"master":      httpClient(t, plane.AdminConfig()),
	}
}

// table asks all paths as all callers. The path of the garbage collector's graph differs between the two managers.
func (m *manager) table(t *testing.T, callers map[string]*http.Client, graph string) map[string]int {
	t.Helper()
	table := map[string]int{}
	for caller, client := range callers {
		for _, path := range paths {
			ask := path
			if path == graphOfStock {
				ask = graph
			}
			status, _, err := m.get(t.Context(), client, ask)
			if err != nil {
				t.Fatal(err)
			}
			table[caller+" "+path] = status
		}
	}
	return table
}

var checkLine = regexp.MustCompile(`(?m)^\[\+\](\S+) ok$`)

// checks returns the names of the health checks, all of which must be well.
func (m *manager) checks(t *testing.T, client *http.Client) []string {
	t.Helper()
	names, err := m.readChecks(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func (m *manager) readChecks(ctx context.Context, client *http.Client) ([]string, error) {
	status, body, err := m.get(ctx, client, "/healthz?verbose")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("/healthz of %s answers %d: %s", m.Name(), status, body)
	}
	var names []string
	for _, match := range checkLine.FindAllStringSubmatch(body, -1) {
		names = append(names, match[1])
	}
	return names, nil
}

// says returns a condition for eventually: the answer contains the texts.
func (m *manager) says(client *http.Client, path string, texts ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, body, err := m.get(ctx, client, path)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if !strings.Contains(body, text) {
				return fmt.Errorf("%s of %s does not say %q: %s", path, m.Name(), text, body)
			}
		}
		return nil
	}
}

// electionCheck is the check of the election of either.
const electionCheck = "leaderElection"

// requireChecks wants every check of the stock controller manager once for each shard that runs the controller, and each
// by itself.
func requireChecks(t *testing.T, m *manager, client *http.Client, stock []string) {
	checks := m.checks(t, client)
	for _, name := range stock {
		if name == electionCheck && slices.Contains(checks, name) {
			continue
		}
		if !slices.ContainsFunc(checks, func(check string) bool { return strings.HasPrefix(check, name+"@") }) {
			t.Errorf("no check for %s", name)
		}
	}
	if !slices.Contains(stock, electionCheck) {
		t.Errorf("the stock controller manager has no check %s", electionCheck)
	}
	for _, name := range checks {
		if !strings.Contains(name, "@") && name != electionCheck {
			t.Errorf("check %s does not say of which shard", name)
		}
		status, body, err := m.get(t.Context(), client, "/healthz/"+name)
		if err != nil || status != http.StatusOK {
			t.Errorf("/healthz/%s: %d %s %v", name, status, body, err)
		}
	}
	t.Logf("%d health checks of the stock controller manager, %d of a member with all shards", len(stock), len(checks))
}

func requireContents(t *testing.T, m *manager, client *http.Client) {
	for path, texts := range map[string][]string{
		"/configz":      {`"kubecontrollermanager.config.k8s.io"`, `"leaseDuration":"10s"`},
		"/metrics":      {`kubernetes_build_info{`, `git_version="v1.37.1"`, "flotilla_shard_owned{"},
		"/metrics/slis": {"kubernetes_healthcheck"},
		// What stands between name and value changes from request to request, as a warning to who would parse it.
		"/flagz":                         {"kube-controller-manager", "fleet-name", "member-name", "rebalance-delay", "shards"},
		"/statusz":                       {"kube-controller-manager", "Binary version", "1.37.1"},
		"/debug/pprof/goroutine?debug=1": {"goroutine profile: total"},
		graphOfMember:                    {"strict digraph full"},
	} {
		if err := m.says(client, path, texts...)(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// requireMoved wants the checks and debug handlers of a shard where it runs, and nowhere else.
func requireMoved(t *testing.T, one, two *manager, client *http.Client) {
	plan, err := controllers.DefaultPlan(2)
	if err != nil {
		t.Fatal(err)
	}
	took := eventually(t, patience, "every shard's checks at one member", func(ctx context.Context) error {
		ones, err := one.readChecks(ctx, client)
		if err != nil {
			return err
		}
		twos, err := two.readChecks(ctx, client)
		if err != nil {
			return err
		}
		if len(twos) == 0 {
			return fmt.Errorf("two has no checks yet")
		}
		for _, s := range plan.Shards() {
			ofShard := func(check string) bool { return strings.HasSuffix(check, "@"+s.ID.String()) }
			if atOne, atTwo := slices.ContainsFunc(ones, ofShard), slices.ContainsFunc(twos, ofShard); atOne == atTwo {
				return fmt.Errorf("checks of %s: at the first member %v, at the second %v", s.ID, atOne, atTwo)
			}
		}
		return nil
	})
	t.Logf("checks moved with their shards %v after the second member was started", took)
	graphs := map[int]int{}
	eventually(t, patience, "the garbage collector's graph at one member alone", func(ctx context.Context) error {
		clear(graphs)
		for _, m := range []*manager{one, two} {
			status, _, err := m.get(ctx, client, graphOfMember)
			if err != nil {
				return err
			}
			graphs[status]++
		}
		if graphs[http.StatusOK] != 1 || graphs[http.StatusNotFound] != 1 {
			return fmt.Errorf("answers by status: %v", graphs)
		}
		return nil
	})
}
