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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	// pages are the feature gates of /flagz and /statusz.
	pages = "--feature-gates=ComponentFlagz=true,ComponentStatusz=true"

	graphOfStock  = "/debug/controllers/garbage-collector-controller/graph"
	graphOfMember = "/debug/controllers/garbage-collector-controller@cluster/garbage/graph"
)

// paths are requested by all callers, and must be answered as the stock controller manager answers
// them.
var paths = []string{
	"/healthz", "/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz", "/debug/pprof/", "/debug/pprof/cmdline",
	"/debug/flags/v", graphOfStock, "/nonsense",
}

// TestEndpoints compares a member's secure port with the stock controller manager's, and reads its
// pages.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	plane := sharedPlane(t)
	callers := newCallers(t, plane)

	// Its Lease lasts until the member has been seen to wait for it.
	lasting := []string{pages, "--leader-elect-lease-duration=1h", "--leader-elect-renew-deadline=59m"}
	stock := harness.Run(t, plane, harness.Spec{Name: harness.Stock, Binary: harness.Stock, Flags: lasting})
	harness.Eventually(t, harness.Patience, "stock runs", stock.Answers(graphOfStock, http.StatusOK))
	harness.Eventually(t, harness.Patience, "stock has checks", stock.Says("/healthz?verbose", "garbage-collector-controller"))
	want, stockChecks := askAll(t, stock, callers, graphOfStock), checks(t, stock)
	stock.MustStop(t)

	one := harness.Run(t, plane, harness.Member("one", append([]string{"--shards=2", pages}, quick...)...))
	anonymous := one.As(callers["anonymous"])
	t.Run("not ready without shards", func(t *testing.T) {
		harness.Eventually(t, harness.Patience, "alive", one.Answers("/livez", http.StatusOK))
		status, _, err := anonymous.Get(t.Context(), "/readyz")
		if err != nil || status != http.StatusInternalServerError {
			t.Errorf("/readyz answers %d, %v", status, err)
		}
		harness.Eventually(t, harness.Patience, "the reason", one.Says("/readyz/fleet", "member one has not joined", "the leader lock, Lease kube-controller-manager, is held by"))
		released := []byte(`{"spec":{"holderIdentity":""}}`)
		leases := harness.Client(t, plane).CoordinationV1().Leases(metav1.NamespaceSystem)
		if _, err := leases.Patch(t.Context(), harness.Stock, types.MergePatchType, released, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, harness.Patience, "ready", anonymous.Ready)
	})
	t.Run("same answers as stock", func(t *testing.T) {
		harness.Eventually(t, harness.Patience, "the collector runs", one.Answers(graphOfMember, http.StatusOK))
		// The API server authenticates the callers, and may be slow to answer.
		harness.Eventually(t, harness.Patience, "the same answers", func(context.Context) error {
			if diff := cmp.Diff(want, askAll(t, one, callers, graphOfMember)); diff != "" {
				return fmt.Errorf("stock (-), member (+):\n%s", diff)
			}
			return nil
		})
		t.Logf("%d answers are the same as those of the stock controller manager", len(want))
	})
	t.Run("health checks", func(t *testing.T) { requireChecks(t, one, stockChecks) })
	t.Run("contents", func(t *testing.T) { requireContents(t, one) })
	two := harness.Run(t, plane, harness.Member("two", append([]string{"--shards=2", pages}, quick...)...))
	t.Run("moved shards", func(t *testing.T) { requireMoved(t, one, two) })
}

// newCallers returns clients for an anonymous caller, a caller without rights, and one that may
// read.
func newCallers(t *testing.T, plane *controlplane.ControlPlane) map[string]*http.Client {
	t.Helper()
	client := harness.Client(t, plane)
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
		return harness.Caller(t, config)
	}
	return map[string]*http.Client{
		"anonymous":   harness.Caller(t, rest.AnonymousClientConfig(plane.AdminConfig())),
		"wrong token": withToken("nonsense"),
		"reader":      withToken(token.Status.Token),
		"stranger":    harness.Caller(t, stranger),
		"master":      harness.Caller(t, plane.AdminConfig()),
	}
}

// askAll requests all paths as all callers. The path of the garbage collector's graph differs
// between the two managers.
func askAll(t *testing.T, m *harness.Manager, callers map[string]*http.Client, graph string) map[string]int {
	t.Helper()
	table := map[string]int{}
	for caller, client := range callers {
		for _, path := range paths {
			ask := path
			if path == graphOfStock {
				ask = graph
			}
			status, _, err := m.As(client).Get(t.Context(), ask)
			if err != nil {
				t.Fatal(err)
			}
			table[caller+" "+path] = status
		}
	}
	return table
}

var checkLine = regexp.MustCompile(`(?m)^\[\+\](\S+) ok$`)

// checks returns the names of the health checks, all of which must pass.
func checks(t *testing.T, m *harness.Manager) []string {
	t.Helper()
	names, err := readChecks(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func readChecks(ctx context.Context, m *harness.Manager) ([]string, error) {
	status, body, err := m.Get(ctx, "/healthz?verbose")
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

// electionCheck is the name of the election's check in both managers.
const electionCheck = "leaderElection"

// requireChecks requires every check of the stock controller manager once for each shard that runs
// the controller, and that each works by itself.
func requireChecks(t *testing.T, m *harness.Manager, stock []string) {
	checks := checks(t, m)
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
		status, body, err := m.Get(t.Context(), "/healthz/"+name)
		if err != nil || status != http.StatusOK {
			t.Errorf("/healthz/%s: %d %s %v", name, status, body, err)
		}
	}
	t.Logf("%d health checks of the stock controller manager, %d of a member with all shards", len(stock), len(checks))
}

func requireContents(t *testing.T, m *harness.Manager) {
	for path, texts := range map[string][]string{
		"/configz":      {`"kubecontrollermanager.config.k8s.io"`, `"leaseDuration":"10s"`},
		"/metrics":      {`kubernetes_build_info{`, `git_version="v1.37.1"`, "flotilla_shard_owned{"},
		"/metrics/slis": {"kubernetes_healthcheck"},
		// The separator between name and value changes from request to request, to discourage
		// parsing.
		"/flagz":                         {"kube-controller-manager", "fleet-name", "member-name", "rebalance-delay", "shards"},
		"/statusz":                       {"kube-controller-manager", "Binary version", "1.37.1"},
		"/debug/pprof/goroutine?debug=1": {"goroutine profile: total"},
		graphOfMember:                    {"strict digraph full"},
	} {
		if err := m.Says(path, texts...)(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// requireMoved requires a shard's checks and debug handlers where the shard runs, and nowhere else.
func requireMoved(t *testing.T, one, two *harness.Manager) {
	plan, err := catalogue.DefaultPlan(2)
	if err != nil {
		t.Fatal(err)
	}
	took := harness.Eventually(t, harness.Patience, "every shard's checks at one member", func(ctx context.Context) error {
		ones, err := readChecks(ctx, one)
		if err != nil {
			return err
		}
		twos, err := readChecks(ctx, two)
		if err != nil {
			return err
		}
		if len(twos) == 0 {
			return fmt.Errorf("the second member has no checks yet")
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
	harness.Eventually(t, harness.Patience, "the garbage collector's graph at one member alone", func(ctx context.Context) error {
		clear(graphs)
		for _, m := range []*harness.Manager{one, two} {
			status, _, err := m.Get(ctx, graphOfMember)
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
