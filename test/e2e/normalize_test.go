package e2e

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// Each case has two clusters whose objects are, or are not, in the same state.
func TestNormalize(t *testing.T) {
	for name, c := range map[string]struct {
		one, other []string
		differ     bool
	}{
		"identities and times": {
			one:   []string{`{"kind":"A","metadata":{"name":"a","uid":"u1","resourceVersion":"7","generation":1,"creationTimestamp":"2026-01-02T03:04:05Z"}}`},
			other: []string{`{"kind":"A","metadata":{"name":"a","uid":"u2","resourceVersion":"9","generation":4,"creationTimestamp":"2027-01-02T03:04:05.678901Z"}}`},
		},
		"generated names, and references to them": {
			one: []string{
				`{"kind":"Pod","metadata":{"name":"web-aaaaa","generateName":"web-"}}`,
				`{"kind":"Slice","metadata":{"name":"s"},"endpoints":[{"addresses":["10.0.0.1"],"nodeName":"n1","targetRef":{"name":"web-aaaaa"}}]}`,
			},
			other: []string{
				`{"kind":"Slice","metadata":{"name":"s"},"endpoints":[{"addresses":["10.0.0.9"],"nodeName":"n2","targetRef":{"name":"web-zzzzz"}}]}`,
				`{"kind":"Pod","metadata":{"name":"web-zzzzz","generateName":"web-"}}`,
			},
		},
		"a generated name is missing": {
			one:    []string{`{"kind":"Pod","metadata":{"name":"web-a","generateName":"web-"}}`, `{"kind":"Pod","metadata":{"name":"web-b","generateName":"web-"}}`},
			other:  []string{`{"kind":"Pod","metadata":{"name":"web-c","generateName":"web-"}}`},
			differ: true,
		},
		"objects that only a generated name tells apart, in another order": {
			one:   []string{`{"kind":"Pod","metadata":{"name":"w-a","generateName":"w-"},"i":0}`, `{"kind":"Pod","metadata":{"name":"w-b","generateName":"w-"},"i":1}`},
			other: []string{`{"kind":"Pod","metadata":{"name":"w-c","generateName":"w-"},"i":1}`, `{"kind":"Pod","metadata":{"name":"w-d","generateName":"w-"},"i":0}`},
		},
		"uid within a text": {
			one:   []string{`{"kind":"A","metadata":{"name":"a","labels":{"controller-uid":"0d3a5e44-9a2d-4a7b-bd7b-0c8ac1f5a0b1"}}}`},
			other: []string{`{"kind":"A","metadata":{"name":"a","labels":{"controller-uid":"ffffffff-9a2d-4a7b-bd7b-0c8ac1f5a0b1"}}}`},
		},
		"volume of the service account": {
			one:   []string{`{"kind":"A","metadata":{"name":"a"},"name":"kube-api-access-x8z2k"}`},
			other: []string{`{"kind":"A","metadata":{"name":"a"},"name":"kube-api-access-aaaaa"}`},
		},
		"certificates and tokens": {
			one:   []string{`{"kind":"A","metadata":{"name":"a"},"ca":"-----BEGIN CERTIFICATE-----\nMIIB\n-----END","data":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tAAAA","token":"ZXlKaGJHY2lPaUpTAAAA"}`},
			other: []string{`{"kind":"A","metadata":{"name":"a"},"ca":"-----BEGIN CERTIFICATE-----\nMIIC\n-----END","data":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tBBBB","token":"ZXlKaGJHY2lPaUpTBBBB"}`},
		},
		"which certificate it was": {
			one:   []string{`{"kind":"A","metadata":{"name":"kubernetes.io:kube-apiserver-serving:a5296612942165dcc85db3d8"}}`},
			other: []string{`{"kind":"A","metadata":{"name":"kubernetes.io:kube-apiserver-serving:7cf4e504e1a96a884de7edcb"}}`},
		},
		"order of conditions": {
			one:   []string{`{"kind":"A","metadata":{"name":"a"},"conditions":[{"type":"X"},{"type":"Y"}]}`},
			other: []string{`{"kind":"A","metadata":{"name":"a"},"conditions":[{"type":"Y"},{"type":"X"}]}`},
		},
		"when endpoints changed": {
			one:   []string{`{"kind":"A","metadata":{"name":"a","annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-02T03:04:05Z"}}}`},
			other: []string{`{"kind":"A","metadata":{"name":"a"}}`},
		},
		"order of containers": {
			one:    []string{`{"kind":"A","metadata":{"name":"a"},"containers":[{"name":"X"},{"name":"Y"}]}`},
			other:  []string{`{"kind":"A","metadata":{"name":"a"},"containers":[{"name":"Y"},{"name":"X"}]}`},
			differ: true,
		},
		"both have seen their newest generation": {
			one:   []string{`{"kind":"A","metadata":{"name":"a","generation":2},"status":{"observedGeneration":2}}`},
			other: []string{`{"kind":"A","metadata":{"name":"a","generation":5},"status":{"observedGeneration":5}}`},
		},
		"one has not seen its newest generation": {
			one:    []string{`{"kind":"A","metadata":{"name":"a","generation":2},"status":{"observedGeneration":2}}`},
			other:  []string{`{"kind":"A","metadata":{"name":"a","generation":2},"status":{"observedGeneration":1}}`},
			differ: true,
		},
		"which rollout of a Deployment that recreates its pods is named": {
			one:   []string{`{"kind":"Deployment","metadata":{"name":"a"},"spec":{"strategy":{"type":"Recreate"}},"status":{"conditions":[{"message":"ReplicaSet \"a-1\" has successfully progressed."}]}}`},
			other: []string{`{"kind":"Deployment","metadata":{"name":"a"},"spec":{"strategy":{"type":"Recreate"}},"status":{"conditions":[{"message":"ReplicaSet \"a-2\" has successfully progressed."}]}}`},
		},
		"which rollout of another Deployment is named": {
			one:    []string{`{"kind":"Deployment","metadata":{"name":"a"},"spec":{"strategy":{"type":"RollingUpdate"}},"status":{"conditions":[{"message":"ReplicaSet \"a-1\" has successfully progressed."}]}}`},
			other:  []string{`{"kind":"Deployment","metadata":{"name":"a"},"spec":{"strategy":{"type":"RollingUpdate"}},"status":{"conditions":[{"message":"ReplicaSet \"a-2\" has successfully progressed."}]}}`},
			differ: true,
		},
		"a Deployment that recreates its pods has not progressed": {
			one:    []string{`{"kind":"Deployment","metadata":{"name":"a"},"spec":{"strategy":{"type":"Recreate"}},"status":{"conditions":[{"message":"ReplicaSet \"a-1\" has successfully progressed."}]}}`},
			other:  []string{`{"kind":"Deployment","metadata":{"name":"a"},"spec":{"strategy":{"type":"Recreate"}},"status":{"conditions":[{"message":"ReplicaSet \"a-1\" is progressing."}]}}`},
			differ: true,
		},
		"a number": {
			one:    []string{`{"kind":"A","metadata":{"name":"a"},"replicas":2}`},
			other:  []string{`{"kind":"A","metadata":{"name":"a"},"replicas":3}`},
			differ: true,
		},
		"a field is missing": {
			one:    []string{`{"kind":"A","metadata":{"name":"a","finalizers":["f"]}}`},
			other:  []string{`{"kind":"A","metadata":{"name":"a"}}`},
			differ: true,
		},
		"another namespace": {
			one:    []string{`{"kind":"A","metadata":{"name":"a","namespace":"n"}}`},
			other:  []string{`{"kind":"A","metadata":{"name":"a","namespace":"m"}}`},
			differ: true,
		},
		"an address is missing": {
			one:    []string{`{"kind":"A","metadata":{"name":"a"},"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}]}`},
			other:  []string{`{"kind":"A","metadata":{"name":"a"},"addresses":[{"ip":"10.0.0.1"}]}`},
			differ: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			one, other := parse(t, c.one), parse(t, c.other)
			before := content(one)
			diff := Difference(Normalize(one), Normalize(other))
			if (diff != "") != c.differ {
				t.Errorf("difference: %v, want one: %v\n%s", diff != "", c.differ, diff)
			}
			if content(one) != before {
				t.Error("the objects were changed")
			}
		})
	}
}

func TestNormalizeNamesObjects(t *testing.T) {
	state := Normalize(parse(t, []string{
		`{"kind":"Pod","metadata":{"name":"web-a","namespace":"n","generateName":"web-"}}`,
		`{"kind":"Pod","metadata":{"name":"web-b","namespace":"n","generateName":"web-"}}`,
		`{"kind":"IPAddress","metadata":{"name":"10.0.0.1"}}`,
	}))
	for _, key := range []string{"Pod n/web-<random>", "Pod n/web-<random> (2)", "IPAddress <address>"} {
		if _, ok := state[key]; !ok {
			t.Errorf("no object is called %q", key)
		}
	}
	if len(state) != 3 {
		t.Errorf("%d objects, want 3: %v", len(state), state)
	}
}

func parse(t *testing.T, texts []string) []unstructured.Unstructured {
	t.Helper()
	var objects []unstructured.Unstructured
	for _, text := range texts {
		var object unstructured.Unstructured
		if err := json.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
	return objects
}

func TestDifferenceNamesObjects(t *testing.T) {
	want := map[string]any{"A same": "x", "A changed": "x", "A lost": "x"}
	got := map[string]any{"A same": "x", "A changed": "y", "A new": "x"}
	text := Difference(want, got)
	for _, part := range []string{"missing: A lost\n", "differs (- wanted, + got): A changed\n", "not wanted: A new\n"} {
		if !strings.Contains(text, part) {
			t.Errorf("the difference does not contain %q:\n%s", part, text)
		}
	}
	if strings.Contains(text, "same") {
		t.Errorf("the difference names an object that is the same:\n%s", text)
	}
}
