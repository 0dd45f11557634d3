package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Normalize returns the objects without what differs between two clusters in the same state:
// identities that the API server assigns, times, addresses, and the nodes that the scheduler chose.
// The keys name the objects, so that a difference is readable. Objects that differ only in a
// generated name are numbered.
//
// It is a pure function and does not change the objects.
func Normalize(objects []unstructured.Unstructured) map[string]any {
	names := generatedNames(objects)
	byKey := map[string][]any{}
	for _, object := range objects {
		n := normalizer{names: names, generation: object.GetGeneration(), recreates: recreates(object)}
		key := fmt.Sprintf("%s %s", object.GetKind(), n.text("name", object.GetName()))
		if object.GetNamespace() != "" {
			key = fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), n.text("name", object.GetName()))
		}
		byKey[key] = append(byKey[key], n.value("", object.Object))
	}
	state := map[string]any{}
	for key, alike := range byKey {
		sortByContent(alike)
		for i, object := range alike {
			if i > 0 {
				state[fmt.Sprintf("%s (%d)", key, i+1)] = object
				continue
			}
			state[key] = object
		}
	}
	return state
}

// generatedNames maps names with a random suffix to their prefixes.
func generatedNames(objects []unstructured.Unstructured) map[string]string {
	names := map[string]string{}
	for _, object := range objects {
		if prefix := object.GetGenerateName(); prefix != "" && strings.HasPrefix(object.GetName(), prefix) {
			names[object.GetName()] = prefix + "<random>"
		}
	}
	return names
}

// dropped are fields that do not describe the state. The annotation is when a Service's endpoints
// last changed, if that change was noticed on its own.
var dropped = []string{"uid", "resourceVersion", "generation", "managedFields", "endpoints.kubernetes.io/last-change-trigger-time"}

// unordered are lists whose order has no meaning.
var unordered = []string{"addresses", "conditions", "endpoints", "finalizers", "notReadyAddresses", "ownerReferences"}

type normalizer struct {
	names map[string]string
	// generation is the object's generation, to which observedGeneration refers.
	generation int64
	// recreates is set for a Deployment that removes its old pods before it creates new ones.
	recreates bool
}

// recreates reports whether chance decides which ReplicaSet a Deployment's Progressing condition
// names in the end. Upstream's syncRolloutStatus (pkg/controller/deployment/progress.go) keeps the
// last rollout's condition while there are as many updated replicas as replicas, and a Recreate
// rollout passes through zero of zero. If all old pods leave the count at once, nothing counts as
// progress, and the condition names the old ReplicaSet for ever.
func recreates(object unstructured.Unstructured) bool {
	strategy, _, _ := unstructured.NestedString(object.Object, "spec", "strategy", "type")
	return object.GetKind() == "Deployment" && strategy == "Recreate"
}

var progressed = regexp.MustCompile(`^ReplicaSet "[^"]+" has successfully progressed\.$`)

func (n normalizer) value(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, field := range v {
			if !slices.Contains(dropped, k) {
				out[k] = n.value(k, field)
			}
		}
		if annotations, ok := out["annotations"].(map[string]any); ok && len(annotations) == 0 {
			delete(out, "annotations")
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, element := range v {
			out = append(out, n.value(key, element))
		}
		if slices.Contains(unordered, key) {
			sortByContent(out)
		}
		return out
	case string:
		return n.text(key, v)
	case int64:
		if key == "observedGeneration" && v == n.generation {
			return "<current>"
		}
	}
	return v
}

var patterns = []struct {
	pattern     *regexp.Regexp
	replacement string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`^kube-api-access-[a-z0-9]{5}$`), "kube-api-access-<random>"},
	{regexp.MustCompile(`^\d{4}-\d\d-\d\d$`), "<date>"},
	// These identify the certificate.
	{regexp.MustCompile(`^X509SHA256=[0-9a-f]{64}$`), "<credential>"},
	{regexp.MustCompile(`^kubernetes\.io:kube-apiserver-serving:[0-9a-f]{24}$`), "kubernetes.io:kube-apiserver-serving:<hash>"},
	// In Secrets and in the status of requests they are in base64.
	{regexp.MustCompile(`(?s)^-----BEGIN CERTIFICATE-----.*`), "<certificate>"},
	{regexp.MustCompile(`^LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t.*`), "<certificate>"},
	{regexp.MustCompile(`^ZXlKaGJHY2lPaU.*`), "<token>"},
}

func (n normalizer) text(key, s string) string {
	if name, generated := n.names[s]; generated {
		return name
	}
	if key == "nodeName" {
		return "<node>"
	}
	if key == "message" && n.recreates {
		s = progressed.ReplaceAllString(s, `ReplicaSet "<old or new>" has successfully progressed.`)
	}
	if _, err := time.Parse(time.RFC3339, s); err == nil {
		return "<time>"
	}
	if _, err := netip.ParseAddr(s); err == nil {
		return "<address>"
	}
	if _, err := netip.ParsePrefix(s); err == nil {
		return "<range>"
	}
	for _, p := range patterns {
		s = p.pattern.ReplaceAllString(s, p.replacement)
	}
	return s
}

// Difference describes the objects in which two states differ; empty if there are none.
func Difference(want, got map[string]any) string {
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(want)) {
		object, there := got[key]
		if !there {
			fmt.Fprintf(&out, "missing: %s\n", key)
		} else if diff := gocmp.Diff(want[key], object); diff != "" {
			fmt.Fprintf(&out, "differs (- wanted, + got): %s\n%s", key, diff)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, wanted := want[key]; !wanted {
			fmt.Fprintf(&out, "not wanted: %s\n", key)
		}
	}
	return out.String()
}

func sortByContent(values []any) {
	slices.SortFunc(values, func(a, b any) int { return cmp.Compare(content(a), content(b)) })
}

// content returns equal texts for equal values: JSON sorts the keys of objects.
func content(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
