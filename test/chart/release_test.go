package chart

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNames installs a release of another name: no two releases may share an object or a selector.
func TestNames(t *testing.T) {
	const values = "mode: hosted\n" + watched
	own := regexp.MustCompile(`^flotilla(-metrics-reader|-dashboard)$`)
	for release, want := range map[string]string{"shop": "shop-flotilla", "flotilla-shop": "flotilla-shop"} {
		for kind, objects := range render(t, release, hosted, values) {
			for _, object := range objects {
				name, _ := object["metadata"].(map[string]any)["name"].(string)
				if name != want && !strings.HasPrefix(name, want+"-") {
					t.Errorf("release %s: %s is called %s, want %s", release, kind, name, want)
				}
			}
			for _, word := range strings.Fields(text(t, map[string][]map[string]any{kind: objects}, kind)) {
				if own.MatchString(word) && kind != "ConfigMap" && kind != "PrometheusRule" {
					t.Errorf("release %s: %s refers to %q", release, kind, word)
				}
			}
		}
	}
	// The release is part of every selector of members.
	for kind, objects := range render(t, "shop", hosted, values) {
		rendered := text(t, map[string][]map[string]any{kind: objects}, kind)
		names := strings.Count(rendered, "app.kubernetes.io/name: flotilla\n")
		if instances := strings.Count(rendered, "app.kubernetes.io/instance: shop\n"); instances != names || names == 0 {
			t.Errorf("%s has %d labels of the release and %d names:\n%s", kind, instances, names, rendered)
		}
	}
}

// TestNamesOfDigits installs a release in a namespace whose name is a number, as that of a tenant
// may be. In YAML such a name is a string only in quotes.
func TestNamesOfDigits(t *testing.T) {
	const values = "{mode: hosted, fullnameOverride: '4711', pkiSecret: '1', kubeconfigSecret: '2', monitoring: {enabled: true, tokenSecret: '3'}, autoscaling: {enabled: true}}"
	for kind, objects := range render(t, "815", "12e4", values) {
		for _, object := range objects {
			numbers(t, kind, object)
		}
	}
}

// numbers finds fields that are names, and numbers.
func numbers(t *testing.T, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, field := range v {
			numbers(t, at+"."+key, field)
		}
	case []any:
		for _, item := range v {
			numbers(t, at+"[]", item)
		}
	case float64:
		if slices.Contains([]float64{4711, 815, 12e4, 1, 2, 3}, v) && names.MatchString(at) {
			t.Errorf("%s is the number %v, want a string", at, v)
		}
	}
}

var names = regexp.MustCompile(`(?i)(name|namespace|names\[\]|instance|job|labels\.[^ ]*)$`)

// TestStandardLabels checks the labels that dashboards and tools expect.
func TestStandardLabels(t *testing.T) {
	for kind, objects := range render(t, "flotilla", "kube-system", watched+scaled) {
		for _, object := range objects {
			labels, _ := object["metadata"].(map[string]any)["labels"].(map[string]any)
			for _, want := range []string{"name", "instance", "version", "component", "part-of", "managed-by"} {
				if labels["app.kubernetes.io/"+want] == nil {
					t.Errorf("%s lacks the label app.kubernetes.io/%s: %v", kind, want, slices.Sorted(maps.Keys(labels)))
				}
			}
		}
	}
}

// TestEmptyIsNone removes what null leaves to the chart.
func TestEmptyIsNone(t *testing.T) {
	const none = "{nodeSelector: {}, tolerations: [], affinity: {}, topologySpreadConstraints: [], priorityClassName: ''}"
	set := text(t, render(t, "flotilla", "kube-system", none), "StatefulSet")
	for _, field := range []string{"nodeSelector:", "tolerations:", "affinity:", "topologySpreadConstraints:", "priorityClassName:"} {
		if strings.Contains(set, field) {
			t.Errorf("%s is still there:\n%s", field, set)
		}
	}
}

// TestSkew has versions of Kubernetes in which a fleet must not run.
func TestSkew(t *testing.T) {
	for _, tc := range []struct {
		namespace, kubernetes, values string
		ok                            bool
	}{
		{"kube-system", "1.36.9", "", false},
		{"kube-system", "v1.37.0-rc.1", "", true},
		{"kube-system", "1.38.4", "", true},
		{"kube-system", "1.39.0", "", false},
		{"kube-system", "1.38.0", "image: {tag: v1.38.0-flotilla.2}", true},
		{"kube-system", "1.37.5", "image: {tag: v1.38.0-flotilla.2}", false},
		{"kube-system", "1.37.5", "image: {tag: latest}", true},
		{"kube-system", "1.36.9", "checkKubeVersion: false", true},
		{hosted, "1.34.0", "mode: hosted", true}, // not the cluster that the fleet controls
		{hosted, "1.33.0", "mode: hosted", false},
	} {
		_, errOut, err := helm(t, tc.values, "template", "flotilla", "deploy/chart", "--namespace="+tc.namespace, "--kube-version="+tc.kubernetes)
		if (err == nil) != tc.ok {
			t.Errorf("Kubernetes %s, %q: %v, want it accepted: %t\n%s", tc.kubernetes, tc.values, err, tc.ok, errOut)
		}
		if !tc.ok && !strings.Contains(errOut, strings.TrimPrefix(tc.kubernetes, "v")) {
			t.Errorf("Kubernetes %s: the error does not name it: %s", tc.kubernetes, errOut)
		}
	}
}

// TestMonitoring checks the monitoring of a hosted fleet: no rights in the management cluster, the
// token of the Secret, and the release's own namespace and pods.
func TestMonitoring(t *testing.T) {
	objects := render(t, "shop", hosted, "mode: hosted\n"+watched)
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding", "Secret"} {
		if len(objects[kind]) > 0 {
			t.Errorf("mode hosted makes a %s:\n%s", kind, text(t, objects, kind))
		}
	}
	monitor := text(t, objects, "ServiceMonitor")
	for _, want := range []string{"- " + hosted + "\n", "name: shop-flotilla-metrics-reader\n", "app.kubernetes.io/instance: shop\n"} {
		if !strings.Contains(monitor, want) {
			t.Errorf("no %q in\n%s", want, monitor)
		}
	}
	if len(objects["PrometheusRule"]) != 1 || len(objects["ConfigMap"]) != 1 {
		t.Errorf("%d PrometheusRules and %d ConfigMaps, want one each", len(objects["PrometheusRule"]), len(objects["ConfigMap"]))
	}
	// In the cluster itself the reader's account, token and rights belong together.
	own := render(t, "shop-flotilla", "kube-system", watched)
	for _, kind := range []string{"ServiceAccount", "Secret", "ClusterRole", "ClusterRoleBinding", "ServiceMonitor"} {
		if !strings.Contains(text(t, own, kind), "name: shop-flotilla-metrics-reader\n") {
			t.Errorf("%s does not name the reader:\n%s", kind, text(t, own, kind))
		}
	}
	if secret := text(t, own, "Secret"); !strings.Contains(secret, "service-account.name: shop-flotilla-metrics-reader\n") {
		t.Errorf("the token is of another account:\n%s", secret)
	}
}

// TestShadowIsAlone checks that shadow.enabled renders no members, and nothing that a shadow does
// not use, whatever else is requested. Users' pod settings apply to it too.
func TestShadowIsAlone(t *testing.T) {
	objects := render(t, "flotilla-shadow", "kube-system", shadowed+watched+scaled+`
nodeSelector: {disk: fast}
tolerations: [{operator: Exists}]
affinity: {nodeAffinity: {}}
imagePullSecrets: [{name: registry}]
podAnnotations: {a: b}
flags: {cluster-cidr: 10.0.0.0/8, controllers: "*"}
extraArgs: [--v=2]
extraEnv: [{name: GODEBUG, value: x=1}]
extraVolumes: [{name: more, emptyDir: {}}]
extraVolumeMounts: [{name: more, mountPath: /more}]
`)
	want := []string{"ClusterRole", "ClusterRoleBinding", "Deployment", "ServiceAccount"}
	if got := slices.Sorted(maps.Keys(objects)); !slices.Equal(got, want) {
		t.Errorf("it makes %v, want %v", got, want)
	}
	deployment := text(t, objects, "Deployment")
	for _, want := range []string{
		"disk: fast\n", "- operator: Exists\n", "nodeAffinity: {}\n", "- name: registry\n", "a: b\n", "- --cluster-cidr=10.0.0.0/8\n", "- --controllers=*\n", "- --v=2\n",
		"name: GODEBUG\n", "mountPath: /more\n", "name: more\n",
	} {
		if !strings.Contains(deployment, want) {
			t.Errorf("no %q in\n%s", want, deployment)
		}
	}
	for _, no := range []string{"pki", "controllers=*,", "app.kubernetes.io/name: flotilla\n"} {
		if strings.Contains(deployment, no) {
			t.Errorf("%q in\n%s", no, deployment)
		}
	}
}

// TestShadowLeavesMembers has an API server that tells helm which StatefulSets exist. A release of
// members must refuse shadow.enabled, with which helm would delete them.
func TestShadowLeavesMembers(t *testing.T) {
	group := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"versions":[{"groupVersion":"%[1]s/v1","version":"v1"}]}`, name)
	}
	kinds := func(version string, namespaced bool, names ...string) string {
		var all []string
		for _, name := range names {
			all = append(all, fmt.Sprintf(`{"name":"%ss","kind":%q,"namespaced":%t,"verbs":["get"]}`,
				strings.ToLower(name), name, namespaced))
		}
		return fmt.Sprintf(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,"resources":[%s]}`,
			version, strings.Join(all, ","))
	}
	const apps, rbac = "apps", "rbac.authorization.k8s.io"
	answers := map[string]string{
		"/version":              `{"major":"1","minor":"37","gitVersion":"v1.37.1"}`,
		"/api":                  `{"kind":"APIVersions","versions":["v1"]}`,
		"/api/v1":               kinds("v1", true, "ServiceAccount"),
		"/apis":                 `{"kind":"APIGroupList","apiVersion":"v1","groups":[` + group(apps) + "," + group(rbac) + "]}",
		"/apis/" + apps + "/v1": kinds(apps+"/v1", true, "StatefulSet", "Deployment"),
		"/apis/" + rbac + "/v1": kinds(rbac+"/v1", false, "ClusterRole", "ClusterRoleBinding"),
		"/apis/apps/v1/namespaces/kube-system/statefulsets/prod-flotilla": `{"kind":"StatefulSet",
			"apiVersion":"apps/v1","metadata":{"name":"prod-flotilla","namespace":"kube-system"}}`,
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, found := answers[r.URL.Path]
		if !found {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	for release, refused := range map[string]bool{"prod": true, "flotilla-shadow": false} {
		_, errOut, err := helm(t, shadowed, "template", release, "deploy/chart", "--namespace=kube-system",
			"--dry-run=server", "--disable-openapi-validation", "--kube-apiserver="+server.URL)
		const want = "StatefulSet kube-system/prod-flotilla is there"
		if (err != nil) != refused || strings.Contains(errOut, want) != refused {
			t.Errorf("release %s: %v, want refused=%t, with %q:\n%s", release, err, refused, want, errOut)
		}
	}
}

// TestNotes checks what helm prints after an installation.
func TestNotes(t *testing.T) {
	for _, tc := range []struct {
		namespace, values string
		want, no          []string
	}{
		{"kube-system", "", []string{"3 members of fleet flotilla, ", "secret flotilla-pki\n", "rollout status statefulset/shop-flotilla"}, []string{"WARNING", "metrics-reader"}},
		{"kube-system", "flags: {fleet-name: shop}", []string{"3 members of fleet shop, "}, nil},
		{"kube-system", "replicas: 1", []string{"WARNING: replicas is 1."}, nil},
		{"kube-system", scaled, []string{"2 to 6 members"}, []string{"WARNING"}},
		{"kube-system", "flags: {handoff-timeout: 30s}", []string{"WARNING: flags.handoff-timeout is 30s, and terminationGracePeriodSeconds is 45"}, nil},
		{"kube-system", "{flags: {handoff-timeout: 30s}, terminationGracePeriodSeconds: 100}", nil, []string{"WARNING"}},
		{"kube-system", shadowed, []string{"a shadow of member 1/3", "logs -f deployment/shop-flotilla\n", "helm uninstall shop"}, []string{"flotilla-pki", "statefulset"}},
		{hosted, "mode: hosted\n" + watched, []string{"flotilla-pki flotilla-kubeconfig\n", "Secret shop-flotilla-metrics-reader"}, nil},
	} {
		out, errOut, err := helm(t, tc.values, "install", "shop", "deploy/chart", "--namespace="+tc.namespace, "--dry-run=client")
		if err != nil {
			t.Fatalf("%q: %v\n%s", tc.values, err, errOut)
		}
		_, notes, _ := strings.Cut(out, "\nNOTES:\n")
		for _, want := range tc.want {
			if !strings.Contains(notes, want) {
				t.Errorf("%q: no %q in the notes:\n%s", tc.values, want, notes)
			}
		}
		for _, no := range tc.no {
			if strings.Contains(notes, no) {
				t.Errorf("%q: the notes have %q:\n%s", tc.values, no, notes)
			}
		}
	}
}
