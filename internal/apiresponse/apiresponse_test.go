package apiresponse

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	jsonType     = "application/json"
)

func encoded(t *testing.T, object runtime.Object, contentType string) []byte {
	t.Helper()
	if contentType == jsonType {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func meta(version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "n", Namespace: "ns", UID: "u", ResourceVersion: version, Generation: 3,
		Labels: map[string]string{"a": "b"}, Finalizers: []string{"f"},
	}
}

// deleted returns meta of an object that is being deleted.
func deleted(finalizers []string, grace *int64) metav1.ObjectMeta {
	m := meta("20")
	m.DeletionTimestamp, m.Finalizers, m.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1, 0)}, finalizers, grace
	return m
}

// TestParse parses the answers that an API server gives to writes, in both encodings.
func TestParse(t *testing.T) {
	pods, namespaces := metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, metav1.TypeMeta{Kind: "Namespace", APIVersion: "v1"}
	status := metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	for name, tc := range map[string]struct {
		object runtime.Object
		want   Object
	}{
		"object":                      {&corev1.Pod{TypeMeta: pods, ObjectMeta: meta("17")}, Object{Version: "17"}},
		"subresource of its own kind": {&autoscalingv1.Scale{TypeMeta: metav1.TypeMeta{Kind: "Scale", APIVersion: "autoscaling/v1"}, ObjectMeta: meta("18")}, Object{Version: "18"}},
		"without a version":           {&corev1.Pod{TypeMeta: pods}, Object{}},
		"status of a deletion": {&metav1.Status{TypeMeta: status, Status: "Success", Details: &metav1.StatusDetails{Name: "n", Kind: "pods", UID: "gone-1"}},
			Object{Gone: "gone-1", Status: true}},
		"status without details":  {&metav1.Status{TypeMeta: status, Status: "Success"}, Object{Status: true}},
		"without finalizers":      {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "u", ResourceVersion: "20"}}, Object{Version: "20"}},
		"deleted, with finalizer": {&corev1.Pod{TypeMeta: pods, ObjectMeta: deleted([]string{"f"}, nil)}, Object{Version: "20"}},
		"deleted, without":        {&corev1.Pod{TypeMeta: pods, ObjectMeta: deleted(nil, nil)}, Object{Version: "20", Gone: "u"}},
		"deleted, no grace":       {&corev1.Pod{TypeMeta: pods, ObjectMeta: deleted(nil, new(int64(0)))}, Object{Version: "20", Gone: "u"}},
		"deleted, with grace":     {&corev1.Pod{TypeMeta: pods, ObjectMeta: deleted(nil, new(int64(30)))}, Object{Version: "20"}},
		"namespace, held": {&corev1.Namespace{TypeMeta: namespaces, ObjectMeta: deleted(nil, nil), Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}},
			Object{Version: "20"}},
		"namespace, only its metadata": {&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: deleted(nil, nil)},
			Object{Version: "20", Gone: "u", Partial: true}},
		"namespace, not held": {&corev1.Namespace{TypeMeta: namespaces, ObjectMeta: deleted(nil, nil)}, Object{Version: "20", Gone: "u"}},
	} {
		for _, contentType := range []string{jsonType, protobufType} {
			t.Run(name+" as "+contentType, func(t *testing.T) {
				if got, err := parse(contentType, encoded(t, tc.object, contentType)); got != tc.want || err != nil {
					t.Errorf("parse() = %+v, %v, want %+v", got, err, tc.want)
				}
			})
		}
	}
	for name, text := range map[string]string{"empty": "", "no object": "null and void", "cut": `{"kind":"Pod","metadata":{"resourceVersion":"1"`} {
		for _, contentType := range []string{jsonType, protobufType, "text/plain"} {
			if _, err := parse(contentType, []byte(text)); err == nil {
				t.Errorf("%s as %s was read", name, contentType)
			}
		}
	}
	// An answer that breaks off within the metadata does not say whether there are finalizers.
	held := encoded(t, &corev1.ConfigMap{ObjectMeta: deleted([]string{"flotilla.dev/finalizer"}, nil)}, protobufType)
	at := bytes.Index(held, []byte("flotilla.dev/finalizer"))
	for _, text := range [][]byte{held[:at-2], held[:at], held[:at+5]} {
		if got, err := parse(protobufType, text); err == nil {
			t.Errorf("the first %d bytes of an object were read: %+v", len(text), got)
		}
	}
	namespace := &corev1.Namespace{TypeMeta: namespaces, ObjectMeta: deleted(nil, nil), Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}}
	text := encoded(t, namespace, protobufType)
	for _, less := range []int{1, len("kubernetes"), len("kubernetes") + 6} {
		if got, err := parse(protobufType, text[:len(text)-less]); err == nil && got.Gone != "" {
			t.Errorf("a namespace without its last %d bytes is gone: %+v", less, got)
		}
	}
	large := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: meta("19"), Data: map[string]string{"k": strings.Repeat("x", headSize)}}
	if got, err := parse(protobufType, encoded(t, large, protobufType)[:headSize]); got.Version != "19" || err != nil {
		t.Errorf("the beginning of a large object gave %+v, %v", got, err)
	}
}

// TestParseList parses the answers to deletions of collections, in both encodings.
func TestParseList(t *testing.T) {
	named := func(uid types.UID, m metav1.ObjectMeta) corev1.ConfigMap {
		m.UID = uid
		return corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"k": "v"}}
	}
	kind := metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}
	for name, tc := range map[string]struct {
		object runtime.Object
		want   []types.UID
		err    error
	}{
		"none": {&corev1.ConfigMapList{TypeMeta: kind, ListMeta: metav1.ListMeta{ResourceVersion: "9"}}, nil, nil},
		"some": {&corev1.ConfigMapList{TypeMeta: kind, ListMeta: metav1.ListMeta{ResourceVersion: "9"}, Items: []corev1.ConfigMap{
			named("b", meta("1")), named("being-deleted", deleted(nil, nil)), named("a", meta("2")),
		}}, []types.UID{"b", "a"}, nil},
		"one waits for the collector": {&corev1.ConfigMapList{TypeMeta: kind, Items: []corev1.ConfigMap{
			named("a", deleted([]string{"f", metav1.FinalizerDeleteDependents}, nil)), named("b", meta("1")),
		}}, nil, errUnreadable},
		"one with another finalizer": {&corev1.ConfigMapList{TypeMeta: kind, Items: []corev1.ConfigMap{named("a", deleted([]string{"f"}, nil))}}, nil, nil},
		"a Status":                   {&metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"}, nil, errUnreadable},
		"an object":                  {&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}, ObjectMeta: meta("1"), Data: map[string]string{"k": "v"}}, nil, errUnreadable},
	} {
		for _, contentType := range []string{jsonType, protobufType} {
			got, err := parseList(contentType, encoded(t, tc.object, contentType))
			if !slices.Equal(got, tc.want) || !errors.Is(err, tc.err) {
				t.Errorf("%s as %s: %v, %v, want %v, %v", name, contentType, got, err, tc.want, tc.err)
			}
		}
	}
	for _, contentType := range []string{jsonType, protobufType, "text/plain"} {
		for name, text := range map[string]string{"empty": "", "no object": "null and void"} {
			if _, err := parseList(contentType, []byte(text)); err == nil {
				t.Errorf("%s as %s was read", name, contentType)
			}
		}
	}
	text := encoded(t, &corev1.ConfigMapList{TypeMeta: kind, Items: []corev1.ConfigMap{named("a", meta("1")), named("b", meta("2"))}}, protobufType)
	large := named("b", meta("2"))
	large.Data["k"] = strings.Repeat("x", listSize)
	long := encoded(t, &corev1.ConfigMapList{TypeMeta: kind, Items: []corev1.ConfigMap{named("a", meta("1")), large}}, protobufType)
	for name, tc := range map[string]struct {
		body io.Reader
		want []types.UID
		err  error
	}{
		"whole":       {bytes.NewReader(text), []types.UID{"a", "b"}, nil},
		"broken off":  {io.MultiReader(bytes.NewReader(text[:len(text)-1]), iotest.ErrReader(io.ErrUnexpectedEOF)), nil, errUnreadable},
		"not read on": {io.MultiReader(bytes.NewReader(text), readerOfNothing{}), nil, errUnreadable},
		"too long":    {bytes.NewReader(long), nil, errUnreadable},
	} {
		calls := 0
		resp := &http.Response{Header: http.Header{"Content-Type": {protobufType}}, Body: io.NopCloser(tc.body)}
		body := Deleted(resp, func(got []types.UID, err error) {
			if calls++; !slices.Equal(got, tc.want) || !errors.Is(err, tc.err) {
				t.Errorf("%s: %v, %v, want %v, %v", name, got, err, tc.want, tc.err)
			}
		})
		for into := make([]byte, 1<<20); ; {
			if n, err := body.Read(into); n == 0 || err != nil {
				break
			}
		}
		if err := body.Close(); err != nil || calls != 1 {
			t.Errorf("%s: called %d times, want once; closing: %v", name, calls, err)
		}
	}
}

// readerOfNothing is a body whose end does not come.
type readerOfNothing struct{}

func (readerOfNothing) Read([]byte) (int, error) { return 0, nil }

// TestBody reads bodies to their end, in part and not at all.
func TestBody(t *testing.T) {
	const text = `{"kind":"Pod","metadata":{"resourceVersion":"17"}}`
	for name, tc := range map[string]struct {
		read int64
		want Object
		err  error
	}{
		"whole": {1 << 10, Object{Version: "17"}, nil}, "in part": {10, Object{}, errUnreadable}, "not at all": {0, Object{}, errUnreadable},
	} {
		calls := 0
		resp := &http.Response{Header: http.Header{"Content-Type": {jsonType}}, Body: io.NopCloser(iotest.OneByteReader(strings.NewReader(text)))}
		body := Body(resp, func(got Object, err error) {
			if calls++; got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s: got %+v, %v, want %+v, %v", name, got, err, tc.want, tc.err)
			}
		})
		got, err := io.ReadAll(io.LimitReader(body, tc.read))
		if want := text[:min(tc.read, int64(len(text)))]; string(got) != want || err != nil {
			t.Errorf("%s: read %q, %v, want %q", name, got, err, want)
		}
		if err := errors.Join(body.Close(), body.Close()); err != nil || calls != 1 {
			t.Errorf("%s: called %d times, want once; closing: %v", name, calls, err)
		}
	}
}

// TestName parses bodies of requests that create objects, in both encodings.
func TestName(t *testing.T) {
	for _, contentType := range []string{jsonType, protobufType} {
		for name, tc := range map[string]struct {
			meta      metav1.ObjectMeta
			want      string
			generated bool
		}{
			"named":     {metav1.ObjectMeta{Name: "web", Namespace: "team"}, "web", false},
			"generated": {metav1.ObjectMeta{GenerateName: "web-"}, "web-", true},
			"both":      {metav1.ObjectMeta{Name: "web", GenerateName: "web-"}, "web", false},
			"neither":   {metav1.ObjectMeta{Namespace: "team"}, "", false},
		} {
			pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: tc.meta}
			if got, generated := Name(contentType, encoded(t, pod, contentType)); got != tc.want || generated != tc.generated {
				t.Errorf("%s in %s: %q, %v", name, contentType, got, generated)
			}
		}
		if got, generated := Name(contentType, []byte("no object")); got != "" || generated {
			t.Errorf("rubbish in %s: %q, %v", contentType, got, generated)
		}
	}
}
