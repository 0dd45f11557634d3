package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
)

var (
	kinds = func() *runtime.Scheme {
		kinds := runtime.NewScheme()
		utilruntime.Must(scheme.AddToScheme(kinds))
		utilruntime.Must(metav1.AddMetaToScheme(kinds))
		return kinds
	}()
	whole = protobuf.NewSerializer(kinds, kinds)
	raw   = protobuf.NewRawSerializer(kinds, kinds)

	managed Fields = func(n protowire.Number) bool { return n == 17 }
	most    Fields = func(n protowire.Number) bool { return !slices.Contains([]protowire.Number{1, 3, 5, 6, 9, 13, 14}, n) }
)

// frame returns an event as an API server sends it.
func frame(t testing.TB, kind watch.EventType, object runtime.Object) []byte {
	t.Helper()
	var encoded, out bytes.Buffer
	if err := whole.Encode(object, &encoded); err != nil {
		t.Fatal(err)
	}
	event := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: encoded.Bytes()}}
	framed := streaming.NewEncoder(protobuf.LengthDelimitedFramer.NewFrameWriter(&out), raw)
	if err := framed.Encode(event); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// framed returns an event with a Pod whose envelope was changed; if nil, with another magic number.
func framed(t *testing.T, change func(*runtime.Unknown)) []byte {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}}}
	content, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope := &runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: content}
	if change != nil {
		change(envelope)
	}
	object, err := envelope.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	object = append(bytes.Clone(magic), object...)
	if change == nil {
		copy(object, "k8s\x01")
	}
	event, err := (&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: object}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

// through returns the body of a watch that sends these bytes, and lacks fields.
func through(body io.Reader, drop Fields) io.ReadCloser {
	answer := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: watchHeader(), Body: io.NopCloser(body)}, nil
	})
	resp, _ := Drop(answer, drop).RoundTrip(nil)
	return resp.Body
}

func watchHeader() http.Header {
	return http.Header{"Content-Type": {"application/vnd.kubernetes.protobuf;stream=watch"}}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// decode returns the events of a body, read as client-go reads them.
func decode(t testing.TB, body io.ReadCloser) ([]watch.Event, error) {
	t.Helper()
	framed := streaming.NewDecoder(protobuf.LengthDelimitedFramer.NewFrameReader(body), raw)
	decoder := restwatch.NewDecoder(framed, whole)
	var events []watch.Event
	for {
		kind, object, err := decoder.Decode()
		if err != nil {
			return events, err
		}
		events = append(events, watch.Event{Type: kind, Object: object})
	}
}

// clearDropped removes what a transport that drops fields removes, after decoding.
func clearDropped(t testing.TB, object runtime.Object, all bool) {
	t.Helper()
	accessor, err := meta.Accessor(object)
	if err != nil {
		t.Fatal(err)
	}
	accessor.SetManagedFields(nil)
	if all {
		accessor.SetGenerateName("")
		accessor.SetSelfLink("")
		accessor.SetGeneration(0)
		accessor.SetCreationTimestamp(metav1.Time{})
		accessor.SetDeletionGracePeriodSeconds(nil)
		accessor.SetLabels(nil)
		accessor.SetAnnotations(nil)
	}
}

// objects returns one random object of each kind that a clientset knows and that has metadata.
func objects(t testing.TB, seed int64) []runtime.Object {
	t.Helper()
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(seed), scheme.Codecs)
	var all []runtime.Object
	known := scheme.Scheme.AllKnownTypes()
	for _, kind := range slices.SortedFunc(maps.Keys(known), func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) }) {
		object, err := scheme.Scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		accessor, ok := object.(metav1.Object)
		if !ok {
			continue
		}
		fill.Fill(object)
		object.GetObjectKind().SetGroupVersionKind(kind)
		accessor.SetManagedFields([]metav1.ManagedFieldsEntry{
			{Manager: "m", Operation: metav1.ManagedFieldsOperationApply, FieldsV1: metav1.NewFieldsV1(`{"f:a":{}}`)},
			{Manager: strings.Repeat("n", int(seed)*100), Subresource: "status"},
		})
		all = append(all, object)
	}
	if len(all) < 100 {
		t.Fatalf("only %d kinds", len(all))
	}
	return all
}

// TestEventsLackFields sends objects of every kind, whole and as metadata, in readers of several
// sizes, and compares what arrives with what was sent.
func TestEventsLackFields(t *testing.T) {
	readers := map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "errors": iotest.DataErrReader,
	}
	for name, reader := range readers {
		t.Run(name, func(t *testing.T) {
			for seed := range int64(5) {
				for _, all := range []bool{false, true} {
					var body bytes.Buffer
					var want []watch.Event
					for i, object := range objects(t, seed) {
						if all {
							partial := &metav1.PartialObjectMetadata{}
							partial.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
							accessor, _ := meta.Accessor(object)
							meta.AsPartialObjectMetadata(accessor).ObjectMeta.DeepCopyInto(&partial.ObjectMeta)
							object = partial
						}
						kind := []watch.EventType{watch.Added, watch.Modified, watch.Deleted}[i%3]
						body.Write(frame(t, kind, object))
						want = append(want, watch.Event{Type: kind, Object: object})
					}
					drop := managed
					if all {
						drop = most
					}
					sent := body.Len()
					got, err := decode(t, through(reader(bytes.NewReader(body.Bytes())), drop))
					if !errors.Is(err, io.EOF) {
						t.Fatal(err)
					}
					before, err := decode(t, io.NopCloser(&body))
					if !errors.Is(err, io.EOF) || len(got) != len(before) || len(got) != len(want) {
						t.Fatalf("%d events of %d, error %v, %d bytes", len(got), len(want), err, sent)
					}
					for i := range got {
						clearDropped(t, before[i].Object, all)
						if diff := gocmp.Diff(before[i], got[i]); diff != "" {
							t.Fatalf("%T (-decoded and cleared +received):\n%s", want[i].Object, diff)
						}
					}
				}
			}
		})
	}
}

var errCut = errors.New("the connection was cut")

// TestOtherThingsPass checks that what is no event of an object, or cannot be read, passes byte for
// byte.
func TestOtherThingsPass(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	pod.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Pod"))
	added := frame(t, watch.Added, pod)
	big := pod.DeepCopy()
	big.Annotations = map[string]string{"big": strings.Repeat("x", longest)}
	gone := &metav1.Status{Status: metav1.StatusFailure, Message: "too old", Reason: metav1.StatusReasonExpired, ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "x"}}
	gone.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Status"})
	for name, body := range map[string][]byte{
		"bookmark": frame(t, watch.Bookmark, pod), "error": frame(t, watch.Error, gone), "status": frame(t, watch.Modified, gone),
		"encoded": framed(t, func(o *runtime.Unknown) { o.ContentEncoding = "gzip" }), "another magic number": framed(t, nil),
		"too long": frame(t, watch.Added, big), "half a frame": added[:len(added)/2], "half a length": added[:3],
		"only a length": added[:4], "empty": {}, "empty frame": {0, 0, 0, 0}, "JSON": []byte(`{"type":"ADDED","object":{}}`),
	} {
		t.Run(name, func(t *testing.T) {
			for _, failure := range []error{io.EOF, errCut} {
				got, err := io.ReadAll(through(io.MultiReader(bytes.NewReader(body), iotest.ErrReader(failure)), most))
				if !bytes.Equal(got, body) {
					t.Errorf("%d bytes have become %d:\n%q\n%q", len(body), len(got), body, got)
				}
				if failure == errCut && !errors.Is(err, errCut) || failure == io.EOF && err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("the body ends with %v, want %v", err, failure)
				}
			}
		})
	}
	nothing := frame(t, watch.Added, &v1.Pod{TypeMeta: pod.TypeMeta, ObjectMeta: metav1.ObjectMeta{Name: "p"}})
	if got, _ := io.ReadAll(through(bytes.NewReader(nothing), managed)); !bytes.Equal(got, nothing) {
		t.Errorf("an object without managed fields: %q has become %q", nothing, got)
	}
	two := append(frame(t, watch.Added, big), added...)
	if events, _ := decode(t, through(bytes.NewReader(two), managed)); len(events) != 2 || len(events[0].Object.(*v1.Pod).ManagedFields) != 1 || len(events[1].Object.(*v1.Pod).ManagedFields) != 0 {
		t.Errorf("after a frame that is too long: %v", events)
	}
}

// TestOtherAnswersPass checks that only the bodies of watches in protobuf are read.
func TestOtherAnswersPass(t *testing.T) {
	for name, resp := range map[string]*http.Response{
		"list":    {StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/vnd.kubernetes.protobuf"}}},
		"JSON":    {StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json;stream=watch"}}},
		"no type": {StatusCode: http.StatusOK},
		"refused": {StatusCode: http.StatusForbidden, Header: watchHeader()},
	} {
		body := io.NopCloser(strings.NewReader("x"))
		resp.Body = body
		got, err := Drop(roundTripper(func(*http.Request) (*http.Response, error) { return resp, nil }), managed).RoundTrip(nil)
		if err != nil || got.Body != body {
			t.Errorf("%s: body %T, error %v", name, got.Body, err)
		}
	}
	failed := errors.New("no connection")
	_, err := Drop(roundTripper(func(*http.Request) (*http.Response, error) { return nil, failed }), managed).RoundTrip(nil)
	if !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
}

// TestEnvelopes checks that the events of framed are those that lack fields otherwise.
func TestEnvelopes(t *testing.T) {
	sent := framed(t, func(*runtime.Unknown) {})
	if got, err := io.ReadAll(through(bytes.NewReader(sent), most)); err != nil || len(got) >= len(sent) {
		t.Errorf("%d bytes of %d, error %v", len(got), len(sent), err)
	}
}

// TestBodiesShareBuffers reads two bodies in turns, so that one returns its buffers while the other
// takes some, and then finds as many buffers as are needed at a time.
func TestBodiesShareBuffers(t *testing.T) {
	made := 0
	defer func(makes func() any) { buffers.New = makes }(buffers.New)
	buffers.New = func() any { made++; return new([]byte) }
	const events = 200
	var want, got [2][]byte
	var bodies [2]io.Reader
	for k := range bodies {
		var sent bytes.Buffer
		for i := range events {
			sent.Write(frame(t, watch.Added, &v1.Pod{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p-%d-%d", k, i)},
			}))
		}
		want[k] = bytes.Clone(sent.Bytes())
		bodies[k] = through(&sent, managed)
	}
	for range want[0] {
		for k, body := range bodies {
			var b [1]byte
			n, _ := body.Read(b[:])
			got[k] = append(got[k], b[:n]...)
		}
	}
	for k := range bodies {
		if !bytes.Equal(got[k], want[k][:len(got[k])]) || len(got[k]) < len(want[0]) {
			t.Errorf("body %d: %d bytes differ from the %d that were sent", k, len(got[k]), len(want[k]))
		}
	}
	if made > events { // The race detector has the pool drop a quarter of them.
		t.Errorf("%d buffers for %d events", made, 2*events)
	}
}

// TestLargeBuffersAreNotKept checks that a buffer that was needed for a large event is given up.
func TestLargeBuffersAreNotKept(t *testing.T) {
	pod := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{
		Name: "p", Annotations: map[string]string{"large": strings.Repeat("x", 2*pooled)},
	}}
	sent := frame(t, watch.Added, pod)
	body := through(bytes.NewReader(sent), managed)
	if _, err := io.ReadFull(body, make([]byte, len(sent))); err != nil {
		t.Fatal(err)
	}
	if f := body.(*frames); f.buffer != nil || f.left != nil {
		t.Error("a watch that waits keeps its buffer")
	}
	for range 20 {
		if b := buffers.Get().(*[]byte); cap(*b) > pooled {
			t.Errorf("a buffer of %d bytes is kept", cap(*b))
		}
	}
}

// TestClose checks that the end of a watch reaches the body behind it.
func TestClose(t *testing.T) {
	behind := &closed{Reader: strings.NewReader("")}
	resp := &http.Response{StatusCode: http.StatusOK, Header: watchHeader(), Body: behind}
	got, err := Drop(roundTripper(func(*http.Request) (*http.Response, error) { return resp, nil }), managed).RoundTrip(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := got.Body.Close(); !errors.Is(err, errCut) || behind.times != 1 {
		t.Errorf("the body behind it was closed %d times, error %v", behind.times, err)
	}
}

// closed counts how often it is closed.
type closed struct {
	io.Reader
	times int
}

func (c *closed) Close() error {
	c.times++
	return errCut
}

// client-go looks for the transport that this one wraps.
var _ utilnet.RoundTripperWrapper = transport{}

// TestEventsAreNotHeldUp reads an event before anything follows it, and finds no buffer afterwards.
func TestEventsAreNotHeldUp(t *testing.T) {
	pod := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	server, client := io.Pipe()
	defer server.Close()
	sent := frame(t, watch.Added, pod)
	go func() { _, _ = client.Write(sent) }()
	body := through(server, managed)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(body, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("got %q, error %v", got, err)
	}
	if f := body.(*frames); f.buffer != nil || f.left != nil {
		t.Error("a watch that waits keeps a buffer")
	}
}

// TestBrokenEvents changes bytes of events. Those that are events still, because encoding them again
// gives the same bytes, are the same without the fields. client-go reads others too: it lets the key
// of a map reach beyond its entry.
func TestBrokenEvents(t *testing.T) {
	var frames [][]byte
	for i, object := range objects(t, 1) {
		if i%10 == 0 {
			frames = append(frames, frame(t, watch.Added, object))
		}
	}
	random, read := rand.New(rand.NewSource(1)), 0
	for i := range 20000 {
		body := bytes.Clone(frames[i%len(frames)])
		for range 1 + random.Intn(3) {
			body[headSize+random.Intn(min(200, len(body)-headSize))] = byte(random.Intn(256))
		}
		before, _ := decode(t, io.NopCloser(bytes.NewReader(body)))
		got, err := decode(t, through(bytes.NewReader(body), managed))
		if len(before) != 1 || before[0].Type == watch.Error || !bytes.Equal(frame(t, before[0].Type, before[0].Object), body) {
			continue
		}
		if len(before) > len(got) {
			t.Fatalf("change %d: the event cannot be read any more: %v\n%q", i, err, body)
		}
		for n, event := range before {
			read++
			for _, object := range []runtime.Object{event.Object, got[n].Object} {
				if accessor, err := meta.Accessor(object); err == nil {
					accessor.SetManagedFields(nil)
				}
			}
			if diff := gocmp.Diff(event, got[n]); diff != "" {
				t.Fatalf("change %d (-decoded and cleared +received):\n%s", i, diff)
			}
		}
	}
	if read < 1000 {
		t.Errorf("only %d events could be read", read)
	}
}

// BenchmarkDecode decodes an event of a Pod as an API server sends it, with and without its managed
// fields.
func BenchmarkDecode(b *testing.B) {
	pod := &v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{
		Name: "p", Namespace: "n", UID: "u", ResourceVersion: "1", Labels: map[string]string{"app": "x"}, ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 800))},
			{Manager: "kubelet", Operation: "Update", APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 700)), Subresource: "status"},
		}}, Spec: v1.PodSpec{NodeName: "node", Containers: []v1.Container{{Name: "c", Image: "image"}}}}
	sent := bytes.Repeat(frame(b, watch.Added, pod), 1000)
	for name, body := range map[string]func() io.ReadCloser{
		"all":     func() io.ReadCloser { return io.NopCloser(bytes.NewReader(sent)) },
		"without": func() io.ReadCloser { return through(bytes.NewReader(sent), managed) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if events, _ := decode(b, body()); len(events) != 1000 {
					b.Fatal(len(events))
				}
			}
		})
	}
}
