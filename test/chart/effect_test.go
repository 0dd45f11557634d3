package chart

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// hosted is a management cluster's namespace.
const hosted = "flotilla-hosted"

// helm runs helm in the root, and returns its output.
func helm(t *testing.T, text string, args ...string) (out, errOut string, err error) {
	t.Helper()
	binary, err := filepath.Abs(root + "/bin/helm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(binary); err != nil {
		t.Fatalf("bin/helm is missing: run 'hack/build-tools.sh helm' (%v)", err)
	}
	cmd := exec.CommandContext(t.Context(), binary, append(args, "--values=-", "--kubeconfig="+os.DevNull)...)
	cmd.Dir, cmd.Stdin = root, strings.NewReader(text)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// render returns the objects that the chart renders for some values, by kind.
func render(t *testing.T, release, namespace, text string, flags ...string) map[string][]map[string]any {
	t.Helper()
	args := append([]string{"template", release, "deploy/chart", "--namespace=" + namespace}, flags...)
	out, errOut, err := helm(t, text, args...)
	if err != nil {
		t.Fatalf("values %q: %v\n%s", text, err, errOut)
	}
	objects := map[string][]map[string]any{}
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(out), 4096)
	for {
		var object map[string]any
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		if kind, ok := object["kind"].(string); ok {
			objects[kind] = append(objects[kind], object)
		}
	}
}

// text returns the rendered objects of one kind, as YAML with sorted keys.
func text(t *testing.T, objects map[string][]map[string]any, kind string) string {
	t.Helper()
	var all []string
	for _, object := range objects[kind] {
		out, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(out))
	}
	return strings.Join(all, "---\n")
}

const (
	anyDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	scaled    = "autoscaling: {enabled: true}\n"
	watched   = "monitoring: {enabled: true}\n"
	shadowed  = "shadow: {enabled: true}\n"
	// aside is a shadow beside the members of release flotilla, whose name it must not have.
	aside = shadowed + "fullnameOverride: flotilla-shadow\n"
)

// effects has for every value what it changes: set has the value, with base beside it. The rendered
// objects of kind must then contain want, and without set must not. An empty want is for a kind
// that disappears.
var effects = map[string]struct{ base, set, kind, want string }{
	"mode":                               {set: "mode: hosted", kind: "StatefulSet", want: "- --kubeconfig=/etc/kubernetes/flotilla/kubeconfig\n"},
	"replicas":                           {set: "replicas: 7", kind: "StatefulSet", want: "  replicas: 7\n"},
	"shadow.enabled":                     {set: aside, kind: "Deployment", want: "- --shadow=1/3\n"},
	"shadow.member":                      {base: aside, set: "shadow: {member: 2/5}", kind: "Deployment", want: "- --shadow=2/5\n"},
	"shadow.rightsOf":                    {base: aside, set: "shadow: {rightsOf: 'system:kube-controller-manager'}", kind: "Deployment", want: "- --shadow-rights-of=system:kube-controller-manager\n"},
	"autoscaling.enabled":                {set: scaled, kind: "HorizontalPodAutoscaler", want: "  minReplicas: 2\n"},
	"autoscaling.minReplicas":            {base: scaled, set: "autoscaling: {minReplicas: 4}", kind: "StatefulSet", want: "  replicas: 4\n"},
	"autoscaling.maxReplicas":            {base: scaled, set: "autoscaling: {maxReplicas: 9}", kind: "HorizontalPodAutoscaler", want: "  maxReplicas: 9\n"},
	"autoscaling.metrics":                {base: scaled, set: "autoscaling: {metrics: [{type: Resource, resource: {name: cpu}}]}", kind: "HorizontalPodAutoscaler", want: "      name: cpu\n"},
	"autoscaling.behavior":               {base: scaled, set: "autoscaling: {behavior: {scaleUp: {stabilizationWindowSeconds: 77}}}", kind: "HorizontalPodAutoscaler", want: "stabilizationWindowSeconds: 77\n"},
	"image.repository":                   {set: "image: {repository: 'example.com/f'}", kind: "StatefulSet", want: "image: example.com/f:v1."},
	"image.tag":                          {set: "image: {tag: v1.37.9}", kind: "StatefulSet", want: "flotilla:v1.37.9\n"},
	"image.digest":                       {set: "image: {digest: '" + anyDigest + "'}", kind: "StatefulSet", want: "@" + anyDigest + "\n"},
	"image.pullPolicy":                   {set: "image: {pullPolicy: Always}", kind: "StatefulSet", want: "imagePullPolicy: Always\n"},
	"imagePullSecrets":                   {set: "imagePullSecrets: [{name: registry}]", kind: "StatefulSet", want: "imagePullSecrets:\n      - name: registry\n"},
	"fullnameOverride":                   {set: "fullnameOverride: other", kind: "StatefulSet", want: "  name: other\n"},
	"checkKubeVersion":                   {set: "checkKubeVersion: false"}, // TestSkew
	"labels":                             {set: "labels: {team: a}", kind: "Service", want: "    team: a\n"},
	"annotations":                        {set: "annotations: {note: b}", kind: "PodDisruptionBudget", want: "  annotations:\n    note: b\n"},
	"podLabels":                          {set: "podLabels: {team: c}", kind: "StatefulSet", want: "        team: c\n"},
	"podAnnotations":                     {set: "podAnnotations: {keys: '2'}", kind: "StatefulSet", want: "      annotations:\n        keys: \"2\"\n"},
	"serviceAccount.annotations":         {set: "serviceAccount: {annotations: {role: d}}", kind: "ServiceAccount", want: "    role: d\n"},
	"flags":                              {set: "flags: {cluster-cidr: 10.0.0.0/8, kube-api-burst: 1000000}", kind: "StatefulSet", want: "- --cluster-cidr=10.0.0.0/8\n        - --kube-api-burst=1000000\n"},
	"extraArgs":                          {set: "extraArgs: [--v=2]", kind: "StatefulSet", want: "- --v=2\n"},
	"leaderLocks":                        {set: "leaderLocks: [none]", kind: "StatefulSet", want: "- --leader-lock=none\n"},
	"extraEnv":                           {set: "extraEnv: [{name: GODEBUG, value: x=1}]", kind: "StatefulSet", want: "- name: GODEBUG\n          value: x=1\n"},
	"extraVolumes":                       {set: "extraVolumes: [{name: more, emptyDir: {}}]", kind: "StatefulSet", want: "- emptyDir: {}\n        name: more\n"},
	"extraVolumeMounts":                  {set: "extraVolumeMounts: [{name: more, mountPath: /more}]", kind: "StatefulSet", want: "- mountPath: /more\n          name: more\n"},
	"pkiSecret":                          {set: "pkiSecret: keys", kind: "StatefulSet", want: "secretName: keys\n"},
	"kubeconfigSecret":                   {base: "mode: hosted\n", set: "kubeconfigSecret: conf", kind: "StatefulSet", want: "secretName: conf\n"},
	"resources":                          {set: "resources: {limits: {cpu: 3}}", kind: "StatefulSet", want: "limits:\n            cpu: 3\n"},
	"terminationGracePeriodSeconds":      {set: "terminationGracePeriodSeconds: 99", kind: "StatefulSet", want: "terminationGracePeriodSeconds: 99\n"},
	"priorityClassName":                  {set: "priorityClassName: high", kind: "StatefulSet", want: "priorityClassName: high\n"},
	"nodeSelector":                       {set: "nodeSelector: {disk: fast}", kind: "StatefulSet", want: "nodeSelector:\n        disk: fast\n"},
	"tolerations":                        {set: "tolerations: [{operator: Exists}]", kind: "StatefulSet", want: "tolerations:\n      - operator: Exists\n"},
	"affinity":                           {set: "affinity: {nodeAffinity: {}}", kind: "StatefulSet", want: "affinity:\n        nodeAffinity: {}\n"},
	"topologySpreadConstraints":          {set: "topologySpreadConstraints: [{maxSkew: 2, topologyKey: rack, whenUnsatisfiable: DoNotSchedule}]", kind: "StatefulSet", want: "labelSelector:\n          matchLabels:\n            app.kubernetes.io/instance: flotilla\n            app.kubernetes.io/name: flotilla\n        maxSkew: 2\n        topologyKey: rack\n"},
	"podDisruptionBudget.enabled":        {set: "podDisruptionBudget: {enabled: false}", kind: "PodDisruptionBudget"},
	"podDisruptionBudget.maxUnavailable": {set: "podDisruptionBudget: {maxUnavailable: 30%}", kind: "PodDisruptionBudget", want: "maxUnavailable: 30%\n"},
	"networkPolicy.enabled":              {set: "networkPolicy: {enabled: false}", kind: "NetworkPolicy"},
	"networkPolicy.from":                 {set: "networkPolicy: {from: [{ipBlock: {cidr: 10.0.0.0/8}}]}", kind: "NetworkPolicy", want: "cidr: 10.0.0.0/8\n"},
	"monitoring.enabled":                 {set: watched, kind: "ServiceMonitor", want: "name: flotilla-metrics-reader\n"},
	"monitoring.tokenSecret":             {base: watched + "mode: hosted\n", set: "monitoring: {tokenSecret: tok}", kind: "ServiceMonitor", want: "name: tok\n"},
	"monitoring.labels":                  {base: watched, set: "monitoring: {labels: {release: prom}}", kind: "PrometheusRule", want: "    release: prom\n"},
	"monitoring.alerts":                  {base: watched, set: "monitoring: {alerts: false}", kind: "PrometheusRule"},
	"monitoring.dashboard":               {base: watched, set: "monitoring: {dashboard: false}", kind: "ConfigMap"},
}

// TestEveryValueHasAnEffect sets every value and checks what it changes.
func TestEveryValueHasAnEffect(t *testing.T) {
	found := map[string]bool{}
	for _, v := range values(t) {
		found[v.path] = true
		tc, ok := effects[v.path]
		switch {
		case !ok:
			t.Errorf("values.yaml: %s has no row in effects: say what it changes", v.path)
			continue
		case tc.kind == "":
			continue
		}
		t.Run(v.path, func(t *testing.T) {
			namespace := func(values string) string {
				if strings.Contains(values, "mode: hosted") {
					return hosted
				}
				return "kube-system"
			}
			with := merged(t, tc.base, tc.set)
			before := text(t, render(t, "flotilla", namespace(tc.base), tc.base), tc.kind)
			after := text(t, render(t, "flotilla", namespace(with), with), tc.kind)
			switch {
			case tc.want == "" && (before == "" || after != ""):
				t.Errorf("%s must take every %s away, of which there are before:\n%s\nand after:\n%s", tc.set, tc.kind, before, after)
			case tc.want != "" && strings.Contains(before, tc.want):
				t.Errorf("%s already has %q without it: the row proves nothing", tc.kind, tc.want)
			case !strings.Contains(after, tc.want):
				t.Errorf("%s: no %q in\n%s", tc.set, tc.want, after)
			}
		})
	}
	for path := range effects {
		if !found[path] {
			t.Errorf("effects has %s, which is not in values.yaml", path)
		}
	}
}

// merged merges one document of values over another, one level deep.
func merged(t *testing.T, base, over string) string {
	t.Helper()
	var all, more map[string]any
	if err := errors.Join(yaml.Unmarshal([]byte(base), &all), yaml.Unmarshal([]byte(over), &more)); err != nil {
		t.Fatal(err)
	}
	if all == nil {
		all = map[string]any{}
	}
	for key, value := range more {
		below, isMap := value.(map[string]any)
		there, wasMap := all[key].(map[string]any)
		if !isMap || !wasMap {
			all[key] = value
			continue
		}
		for k, v := range below {
			there[k] = v
		}
	}
	out, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
