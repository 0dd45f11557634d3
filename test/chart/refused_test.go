package chart

import (
	"slices"
	"strings"
	"testing"
)

// refusals has for every value a wrong one, and helm's message: the field, the value, and what is
// allowed. For a value of the wrong type helm names the type.
var refusals = map[string]struct{ set, want string }{
	"mode":                               {"mode: hostd", "'/mode': 'hostd' does not match pattern '^(self-hosted|hosted)$'"},
	"replicas":                           {"replicas: -1", "'/replicas': minimum: got -1, want 0"},
	"shadow.enabled":                     {"{mode: hosted, shadow: {enabled: true}}", "shadow.enabled: only in mode self-hosted"},
	"shadow.member":                      {"shadow: {member: 3}", "'/shadow/member': got number, want string"},
	"shadow.rightsOf":                    {"shadow: {rightsOf: ''}", "'/shadow/rightsOf': minLength: got 0, want 1"},
	"autoscaling.enabled":                {"autoscaling: {enabled: 'yes'}", "'/autoscaling/enabled': got string, want boolean"},
	"autoscaling.minReplicas":            {"autoscaling: {minReplicas: 1}", "'/autoscaling/minReplicas': minimum: got 1, want 2"},
	"autoscaling.maxReplicas":            {"autoscaling: {enabled: true, minReplicas: 4, maxReplicas: 3}", "autoscaling.maxReplicas 3: must be at least autoscaling.minReplicas, which is 4"},
	"autoscaling.metrics":                {"autoscaling: {metrics: [{type: Pod}]}", "'/autoscaling/metrics/0/type': 'Pod' does not match pattern"},
	"autoscaling.behavior":               {"autoscaling: {behavior: {up: {}}}", "'/autoscaling/behavior': additional properties 'up' not allowed"},
	"image.repository":                   {"image: {repository: 'a b'}", "'/image/repository': 'a b' does not match pattern"},
	"image.tag":                          {"image: {tag: ':x'}", "'/image/tag': ':x' does not match pattern"},
	"image.digest":                       {"image: {digest: abc}", "'/image/digest': 'abc' does not match pattern '^(sha256:"},
	"image.pullPolicy":                   {"image: {pullPolicy: always}", "'/image/pullPolicy': 'always' does not match pattern '^(Always|IfNotPresent|Never)$'"},
	"imagePullSecrets":                   {"imagePullSecrets: [registry]", "'/imagePullSecrets/0': got string, want object"},
	"fullnameOverride":                   {"fullnameOverride: A_b", "'/fullnameOverride': 'A_b' does not match pattern"},
	"checkKubeVersion":                   {"checkKubeVersion: 'no'", "'/checkKubeVersion': got string, want boolean"},
	"labels":                             {"labels: {team: 'b c'}", "'/labels/team': 'b c' does not match pattern"},
	"annotations":                        {"annotations: {note: 3}", "'/annotations/note': got number, want string"},
	"podLabels":                          {"podLabels: {team: 3}", "'/podLabels/team': got number, want string"},
	"podAnnotations":                     {"podAnnotations: {note: 3}", "'/podAnnotations/note': got number, want string"},
	"serviceAccount.annotations":         {"serviceAccount: {annotations: {note: 3}}", "'/serviceAccount/annotations/note': got number, want string"},
	"flags":                              {"flags: {--v: 3}", "'/flags': additional properties '--v' not allowed"},
	"extraArgs":                          {"extraArgs: [v=2]", "'/extraArgs/0': 'v=2' does not match pattern '^--[a-z0-9]'"},
	"leaderLocks":                        {"leaderLocks: ['']", "'/leaderLocks/0': minLength: got 0, want 1"},
	"extraEnv":                           {"extraEnv: [{name: A, value: 3}]", "'/extraEnv/0/value': got number, want string"},
	"extraVolumes":                       {"extraVolumes: [{name: pki, emptyDir: {}}]", "'/extraVolumes/0/name': 'not' failed"},
	"extraVolumeMounts":                  {"extraVolumeMounts: [{name: more}]", "'/extraVolumeMounts/0': missing property 'mountPath'"},
	"pkiSecret":                          {"pkiSecret: ''", "'/pkiSecret': '' does not match pattern"},
	"kubeconfigSecret":                   {"kubeconfigSecret: A", "'/kubeconfigSecret': 'A' does not match pattern"},
	"resources":                          {"resources: {limit: {}}", "'/resources': additional properties 'limit' not allowed"},
	"terminationGracePeriodSeconds":      {"terminationGracePeriodSeconds: 0", "'/terminationGracePeriodSeconds': minimum: got 0, want 1"},
	"priorityClassName":                  {"priorityClassName: A", "'/priorityClassName': 'A' does not match pattern"},
	"nodeSelector":                       {"nodeSelector: {a: 1}", "'/nodeSelector/a': got number, want string"},
	"tolerations":                        {"tolerations: [{effect: noschedule}]", "'/tolerations/0/effect': 'noschedule' does not match pattern '^(NoSchedule|"},
	"affinity":                           {"affinity: {podantiaffinity: {}}", "'/affinity': additional properties 'podantiaffinity' not allowed"},
	"topologySpreadConstraints":          {"topologySpreadConstraints: [{topologyKey: rack}]", "'/topologySpreadConstraints/0': missing properties 'maxSkew', 'whenUnsatisfiable'"},
	"podDisruptionBudget.enabled":        {"podDisruptionBudget: {enabled: 1}", "'/podDisruptionBudget/enabled': got number, want boolean"},
	"podDisruptionBudget.maxUnavailable": {"podDisruptionBudget: {maxUnavailable: half}", "'/podDisruptionBudget/maxUnavailable': 'half' does not match pattern"},
	"networkPolicy.enabled":              {"networkPolicy: {enabled: 1}", "'/networkPolicy/enabled': got number, want boolean"},
	"networkPolicy.from":                 {"networkPolicy: {from: [{cidr: x}]}", "'/networkPolicy/from/0': additional properties 'cidr' not allowed"},
	"monitoring.enabled":                 {"monitoring: {enabled: 1}", "'/monitoring/enabled': got number, want boolean"},
	"monitoring.tokenSecret":             {"monitoring: {tokenSecret: A}", "'/monitoring/tokenSecret': 'A' does not match pattern"},
	"monitoring.labels":                  {"monitoring: {labels: {a: 1}}", "'/monitoring/labels/a': got number, want string"},
	"monitoring.alerts":                  {"monitoring: {alerts: 1}", "'/monitoring/alerts': got number, want boolean"},
	"monitoring.dashboard":               {"monitoring: {dashboard: 1}", "'/monitoring/dashboard': got number, want boolean"},
}

// TestRefused sets every value to a wrong one.
func TestRefused(t *testing.T) {
	cases := map[string]struct{ set, want string }{
		"a misspelt value":                    {"replcas: 3", "additional properties 'replcas' not allowed"},
		"a misspelt label":                    {"labels: {'a b': c}", "'/labels': additional properties 'a b' not allowed"},
		"no replicas":                         {"replicas: null", "missing property 'replicas'"},
		"no grace period":                     {"terminationGracePeriodSeconds: null", "missing property 'terminationGracePeriodSeconds'"},
		"no floor":                            {"autoscaling: {enabled: true, minReplicas: null}", "'/autoscaling': missing property 'minReplicas'"},
		"a budget without a number":           {"podDisruptionBudget: {maxUnavailable: null}", "'/podDisruptionBudget': missing property 'maxUnavailable'"},
		"members without a fleet":             {"flags: {leader-elect: false}", "'/flags/leader-elect': value must be true"},
		"members without one, as an argument": {"extraArgs: [--leader-elect=false]", "'/extraArgs/0': 'not' failed"},
		"a member name for all":               {"flags: {member-name: one}", "'/flags/member-name': 'one' does not match pattern"},
		"an address that no probe reaches":    {"flags: {bind-address: 127.0.0.1}", "'/flags/bind-address': 'not' failed"},
		"a port that no probe asks":           {"flags: {secure-port: 8443}", "'/flags/secure-port': value must be one of 10257, '10257'"},
		"such a port, as an argument":         {"extraArgs: [--secure-port=8443]", "'/extraArgs/0': 'not' failed"},
		"a long name":                         {"fullnameOverride: " + strings.Repeat("a", 53), "'/fullnameOverride': maxLength: got 53, want 52"},
		"a shadow with the members' account": {
			shadowed, `shadow.rightsOf "system:serviceaccount:kube-system:flotilla": must not be the shadow's own`,
		},
	}
	all := values(t)
	for _, v := range all {
		if tc, ok := refusals[v.path]; ok {
			cases[v.path] = tc
		} else {
			t.Errorf("values.yaml: %s has no row in refusals: say which value is refused", v.path)
		}
	}
	for path := range refusals {
		if !slices.ContainsFunc(all, func(v value) bool { return v.path == path }) {
			t.Errorf("refusals has %s, which is not in values.yaml", path)
		}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, errOut, err := helm(t, tc.set, "template", "flotilla", "deploy/chart", "--namespace=kube-system")
			if err == nil || !strings.Contains(errOut, tc.want) {
				t.Errorf("%s: %v, want an error with %q:\n%s", tc.set, err, tc.want, errOut)
			}
		})
	}
}
