package shadow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// wire is a transport that records the requests that reach it.
type wire struct {
	mu     sync.Mutex
	passed []string
	// answer returns its answers.
	answer func(*http.Request) *http.Response
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed = append(w.passed, req.Method+" "+req.URL.Path)
	if w.answer != nil {
		return w.answer(req), nil
	}
	return httptest.NewRecorder().Result(), nil
}

func newTestShadow() *Shadow { return New("", time.Now) }

const pod = "/api/v1/namespaces/team/pods/web"

// TestPasses checks which requests pass, by method, path and header.
func TestPasses(t *testing.T) {
	type tc struct {
		method, path string
		header       http.Header
		passes       bool
	}
	cases := []tc{
		{"", pod, nil, true},
		{"GET", pod, nil, true},
		{"HEAD", pod, nil, true},
		{"GET", "/api/v1/pods?watch=1", nil, true},
		{"GET", "/api/v1/watch/pods", nil, true},
		{"GET", pod + "/log", nil, true},
		{"GET", "/apis", nil, true},
		{"GET", "/apis/metrics.k8s.io/v1beta1/pods", nil, true},
		{"GET", pod + "/exec?command=rm", nil, false},
		{"GET", pod + "/attach", nil, false},
		{"GET", pod + "/portforward", nil, false},
		{"GET", pod + "/proxy/do", nil, false},
		{"GET", "/api/v1/namespaces/team/services/web/proxy/do", nil, false},
		{"GET", "/api/v1/nodes/n/proxy/run/team/web/c", nil, false},
		{"GET", "/api/v1/proxy/namespaces/team/services/web", nil, false},
		{"GET", pod, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, false},
		{"GET", pod, http.Header{"connection": {"upgrade"}, "upgrade": {"SPDY/3.1"}}, false},
		{"CONNECT", pod, nil, false},
		{"OPTIONS", pod, nil, false},
		{"TRACE", pod, nil, false},
		{"MOVE", pod, nil, false},
		{"get", pod, nil, false},
		{"POST", "/healthz", nil, false},
		{"DELETE", "/api/v1/namespaces/team/pods", nil, false},
	}
	types := []string{
		"", "application/json", "application/vnd.kubernetes.protobuf", "application/cbor", "application/json-patch+json", "application/merge-patch+json",
		"application/strategic-merge-patch+json", "application/apply-patch+yaml", "application/apply-patch+cbor", "text/plain",
	}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		for _, path := range []string{
			pod, pod + "/status", pod + "/eviction", pod + "/binding", pod + "/ephemeralcontainers", "/api/v1/namespaces/team/pods", "/api/v1/namespaces/team/serviceaccounts/sa/token",
			"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager", "/apis/aggregated.example.com/v1/things/x",
			"/apis/authentication.k8s.io/v1/tokenreviews", selfReviews, reviews, selfReviews + "/", "/api/v1/namespaces/team/finalize", "/logs/x",
		} {
			for _, contentType := range types {
				cases = append(cases, tc{method, path, http.Header{"Content-Type": {contentType}}, false})
			}
		}
	}
	for _, c := range cases {
		t.Run(c.method+" "+c.path+fmt.Sprint(c.header), func(t *testing.T) {
			s, w := newTestShadow(), &wire{}
			closed := &closing{Reader: strings.NewReader(`{"metadata":{"name":"x"}}`)}
			u, err := url.Parse("https://server" + c.path)
			if err != nil {
				t.Fatal(err)
			}
			req := (&http.Request{Method: c.method, URL: u, Header: c.header, Body: closed}).WithContext(t.Context())
			resp, err := s.Wrap(w).RoundTrip(req)
			if resp != nil {
				defer resp.Body.Close()
			}
			if upgrades(req) || requestOf(req, "").acts() {
				if !errors.Is(err, ErrRefused) {
					t.Errorf("an upgrade ends with %v", err)
				}
				resp = &http.Response{StatusCode: http.StatusForbidden}
			} else if err != nil {
				t.Fatal(err)
			}
			if passed := len(w.passed) > 0; passed != c.passes {
				t.Fatalf("passes: %v, want %v", passed, c.passes)
			}
			if c.passes {
				return
			}
			if resp.StatusCode != http.StatusForbidden || !closed.closed {
				t.Errorf("status %d, body closed %v", resp.StatusCode, closed.closed)
			}
			if all, _, _ := s.writes.list(); len(all) != 1 || all[0].Attempts != 1 {
				t.Errorf("counted %+v, want one", all)
			}
		})
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// TestQuestionsOnly checks that the client for access reviews can send nothing else.
func TestQuestionsOnly(t *testing.T) {
	for _, prefix := range []string{"", "/k8s/clusters/c-1"} {
		for request, passes := range map[string]bool{
			"POST " + selfReviews: true, "POST " + reviews: true,
			"PUT " + reviews: false, "GET " + reviews: false, "POST " + reviews + "/x": false, "POST /x" + reviews: false, "GET " + pod: false, "POST " + pod: false,
			"POST /apis/authorization.k8s.io/v1/namespaces/team/localsubjectaccessreviews": false,
			"POST /apis/authentication.k8s.io/v1/tokenreviews":                             false,
		} {
			s, w := New(prefix, time.Now), &wire{}
			method, path, _ := strings.Cut(request, " ")
			resp, err := s.WrapQuestions(w).RoundTrip(httptest.NewRequestWithContext(t.Context(), method, prefix+path, http.NoBody))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if passed := len(w.passed) > 0; passed != passes {
				t.Errorf("%s after %q passes: %v, want %v", request, prefix, passed, passes)
			}
		}
		s, w := New(prefix, time.Now), &wire{}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, prefix+reviews, http.NoBody)
		req.Header.Set("Upgrade", "websocket")
		resp, err := s.WrapQuestions(w).RoundTrip(req)
		if resp != nil {
			resp.Body.Close()
		}
		if !errors.Is(err, ErrRefused) || len(w.passed) > 0 {
			t.Errorf("an upgrade passes: %v", err)
		}
	}
}

// server is an API server that clients really connect to, and that must see no write.
func server(t *testing.T) (*rest.Config, func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"team"}}`)
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL, QPS: -1}, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

// TestClientsCannotWrite calls client-go's methods that write, in both encodings. Each call must
// fail at once, like a request that RBAC refuses, and the server must see only the one read.
func TestClientsCannotWrite(t *testing.T) {
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			config, seen := server(t)
			s := newTestShadow()
			config.ContentType, config.WrapTransport = contentType, s.Wrap
			rest.AddUserAgent(config, "some-controller")
			client, ctx := kubernetes.NewForConfigOrDie(config), t.Context()
			if _, err := client.CoreV1().Pods("team").Get(ctx, "web", metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			for what, err := range writeAll(ctx, client, dynamic.NewForConfigOrDie(config)) {
				if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "--shadow") {
					t.Errorf("%s: %v", what, err)
				}
			}
			execute(t, config, client)
			if all := seen(); !slices.Equal(all, []string{"GET " + pod}) {
				t.Errorf("the server has seen %q", all)
			}
			requireCounted(t, s)
		})
	}
}

// writeAll makes all writes and returns their errors.
func writeAll(ctx context.Context, client kubernetes.Interface, untyped dynamic.Interface) map[string]error {
	errs := map[string]error{}
	pods, accounts := client.CoreV1().Pods("team"), client.CoreV1().ServiceAccounts("team")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	_, errs["create"] = pods.Create(ctx, p, metav1.CreateOptions{})
	_, errs["create by a generated name"] = pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-"}}, metav1.CreateOptions{})
	_, errs["dry run"] = pods.Create(ctx, p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	_, errs["update"] = pods.Update(ctx, p, metav1.UpdateOptions{})
	_, errs["update of the status"] = pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
	for _, patch := range []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType} {
		_, errs["patch "+string(patch)] = pods.Patch(ctx, "web", patch, []byte("{}"), metav1.PatchOptions{})
	}
	_, errs["apply"] = pods.Apply(ctx, applycorev1.Pod("web", "team"), metav1.ApplyOptions{FieldManager: "m"})
	errs["delete"] = pods.Delete(ctx, "web", metav1.DeleteOptions{})
	errs["delete collection"] = pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	errs["evict"] = pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	errs["bind"] = pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, metav1.CreateOptions{})
	_, errs["token"] = accounts.CreateToken(ctx, "sa", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	_, errs["finalize"] = client.CoreV1().Namespaces().Finalize(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, metav1.UpdateOptions{})
	_, errs["scale"] = client.AppsV1().Deployments("team").Patch(ctx, "d", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}, "scale")
	_, errs["group"] = client.AppsV1().Deployments("team").Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d"}}, metav1.CreateOptions{})
	_, errs["review"] = client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{}, metav1.CreateOptions{})
	_, errs["event"] = client.CoreV1().Events("team").Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}}, metav1.CreateOptions{})
	thing := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "aggregated.example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "x"}}}
	things := untyped.Resource(schema.GroupVersionResource{Group: "aggregated.example.com", Version: "v1", Resource: "things"})
	_, errs["aggregated"] = things.Create(ctx, thing, metav1.CreateOptions{})
	return errs
}

// execute tries to run a command in both ways that client-go has.
func execute(t *testing.T, config *rest.Config, client kubernetes.Interface) {
	t.Helper()
	u := client.CoreV1().RESTClient().Post().Resource("pods").Namespace("team").Name("web").SubResource("exec").URL()
	spdy, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, u)
	if err != nil {
		t.Fatal(err)
	}
	websocket, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, u.String())
	if err != nil {
		t.Fatal(err)
	}
	for name, executor := range map[string]remotecommand.Executor{"spdy": spdy, "websocket": websocket} {
		if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdin: strings.NewReader("")}); err == nil {
			t.Errorf("%s: a command ran", name)
		}
	}
}

// requireCounted checks the counts after writeAll.
func requireCounted(t *testing.T, s *Shadow) {
	t.Helper()
	all, events, _ := s.writes.list()
	got := map[string]string{}
	for _, w := range all {
		if w.Client != "some-controller" && w.Subresource != "exec" {
			t.Errorf("the client of %+v is unknown", w)
		}
		got[w.Verb+" "+w.Name()] = fmt.Sprintf("%d/%d %s", w.Objects, w.Attempts, strings.Join(w.Examples, " "))
	}
	for what, want := range map[string]string{
		"create pods":                          "2/3 team/web team/web-*",
		"update pods":                          "1/1 team/web",
		"patch pods":                           "1/5 team/web",
		"delete pods":                          "1/1 team/web",
		"deletecollection pods":                "1/1 team/",
		"create pods/eviction":                 "1/1 team/web",
		"create serviceaccounts/token":         "1/1 team/sa",
		"update namespaces/finalize":           "1/1 team",
		"create deployments.apps":              "1/1 team/d",
		"create things.aggregated.example.com": "1/1 x",
	} {
		if got[what] != want {
			t.Errorf("%s: %q, want %q", what, got[what], want)
		}
	}
	if events != 1 {
		t.Errorf("%d events, want 1", events)
	}
}
