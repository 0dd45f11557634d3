package election

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// writeHead is how much of an answer is looked at: more than a usual object has.
	writeHead = 256 << 10
	// mostGone is how many deletions are kept for one resource. Those before are older than the last version kept, or
	// have long been seen by whoever watches.
	mostGone = 32
)

// Writes says up to where a cache must have come to have seen what a holder wrote last. It is what makes a planned
// handoff start from a cache that is no older than its predecessor's last write.
type Writes struct {
	// Term of the holder. Writes left by another term than the last prove nothing.
	Term int32 `json:"term"`
	// Resources by what was written last.
	Resources map[string]LastWrite `json:"resources,omitempty"`
}

// LastWrite is the last write to one resource.
type LastWrite struct {
	// Version is the highest resourceVersion that a write was answered with; empty if none had one.
	Version string `json:"version,omitempty"`
	// Gone are the objects that were deleted without an answer that has a version, the latest.
	Gone []types.UID `json:"gone,omitempty"`
	// Unknown is set if an answer was lost, said that the server does not know itself (5xx), or could not be read: then
	// nothing proves that a cache has seen the write.
	Unknown bool `json:"unknown,omitempty"`
}

// WritesOf returns what the last holder has left on a released Lease, and whether it proves anything: it does not if the
// Lease has expired instead, or if what was left is not of its last term or cannot be read.
func WritesOf(released Observation) (Writes, bool) {
	text, left := released.Annotations[WritesAnnotation]
	if !left || !released.Exists || released.Holder != "" {
		return Writes{}, false
	}
	var w Writes
	if err := json.Unmarshal([]byte(text), &w); err != nil || w.Term != released.Transitions {
		return Writes{}, false
	}
	return w, true
}

// Annotation returns the writes as they stand on a Lease.
func (w Writes) Annotation() string {
	text, err := json.Marshal(w)
	if err != nil {
		return "" // strings and numbers alone: it cannot fail
	}
	return string(text)
}

// Unknown returns the resources of which the last write is not known, sorted.
func (w Writes) Unknown() []string {
	var unknown []string
	for name, last := range w.Resources {
		if last.Unknown {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// GroupResources returns the resources by their parsed names.
func (w Writes) GroupResources() map[schema.GroupResource]LastWrite {
	out := make(map[schema.GroupResource]LastWrite, len(w.Resources))
	for name, last := range w.Resources {
		out[schema.ParseGroupResource(name)] = last
	}
	return out
}

// writeLog collects the answers to the writes of one fence.
type writeLog struct {
	mu        sync.Mutex
	resources map[string]LastWrite
}

func (l *writeLog) writes(term int32) Writes {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := Writes{Term: term, Resources: make(map[string]LastWrite, len(l.resources))}
	for name, last := range l.resources {
		last.Gone = slices.Clone(last.Gone)
		w.Resources[name] = last
	}
	return w
}

func (l *writeLog) change(resource string, change func(*LastWrite)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resources == nil {
		l.resources = map[string]LastWrite{}
	}
	last := l.resources[resource]
	change(&last)
	l.resources[resource] = last
}

// unanswered takes in that a write was sent and nobody knows what became of it: the answer was lost, or a server has given
// up waiting for one behind it, which may have carried the write out.
func (l *writeLog) unanswered(req *http.Request) {
	if resource := resourceOf(req.URL.Path); resource != "" {
		l.change(resource, func(last *LastWrite) { last.Unknown = true })
	}
}

// answered takes in the answer to a write. It returns the body to hand on, which is read through.
func (l *writeLog) answered(req *http.Request, resp *http.Response) io.ReadCloser {
	resource := resourceOf(req.URL.Path)
	if resp.StatusCode >= http.StatusInternalServerError {
		l.unanswered(req)
	}
	// A switch of protocols is no answer about an object.
	if resource == "" || resp.StatusCode < 200 || resp.StatusCode >= 300 {
		return resp.Body
	}
	contentType := resp.Header.Get("Content-Type")
	return &head{ReadCloser: resp.Body, done: func(text []byte) {
		version, gone, err := parseAnswer(contentType, text)
		l.change(resource, func(last *LastWrite) {
			switch {
			case err != nil:
				last.Unknown = true
			case version != "":
				if newer(version, last.Version) {
					last.Version = version
				}
			case gone != "" && req.Method == http.MethodDelete:
				last.Gone = append(last.Gone, gone)
				last.Gone = last.Gone[max(0, len(last.Gone)-mostGone):]
			}
		})
	}}
}

// head keeps the beginning of a body while it is read, and tells when it has ended.
type head struct {
	io.ReadCloser
	text []byte
	once sync.Once
	done func(text []byte)
}

func (h *head) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.text = append(h.text, p[:min(n, writeHead-len(h.text))]...)
	if err != nil {
		h.finish()
	}
	return n, err
}

// Close implements io.Closer. What was not read until then is not known.
func (h *head) Close() error {
	h.finish()
	return h.ReadCloser.Close()
}

func (h *head) finish() {
	h.once.Do(func() { h.done(h.text) })
}

// resourceOf returns the resource of an API path as "resource.group"; empty for what is not an object's.
func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var group string
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		group, parts = parts[1], parts[3:]
	default:
		return ""
	}
	// Namespaces have subresources and no deeper objects of their own.
	if parts[0] == "namespaces" && len(parts) >= 3 && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	return schema.GroupResource{Group: group, Resource: parts[0]}.String()
}

var errUnreadable = errors.New("neither the protobuf nor the JSON of an API object")

// parseAnswer reads an object's version, or the UID that a Status speaks of, from the beginning of an answer.
func parseAnswer(contentType string, text []byte) (version string, gone types.UID, err error) {
	switch {
	case strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf"):
		return parseProtobuf(text)
	case strings.HasPrefix(contentType, "application/json"):
		return parseJSON(text)
	default:
		return "", "", fmt.Errorf("%w: %q", errUnreadable, contentType)
	}
}

var protobufMagic = []byte("k8s\x00")

// parseProtobuf reads runtime.Unknown (field 1 TypeMeta, 2 raw) and, within, ObjectMeta (field 1) and its
// resourceVersion (field 6). A Status has its details in field 5, and there the UID in field 6.
func parseProtobuf(text []byte) (string, types.UID, error) {
	text, ok := bytes.CutPrefix(text, protobufMagic)
	if !ok {
		return "", "", errUnreadable
	}
	typeMeta, _ := protoField(text, 1)
	raw, ok := protoField(text, 2)
	if !ok {
		return "", "", errUnreadable
	}
	if kind, _ := protoField(typeMeta, 2); string(kind) == "Status" {
		details, _ := protoField(raw, 5)
		uid, _ := protoField(details, 6)
		return "", types.UID(uid), nil
	}
	meta, ok := protoField(raw, 1)
	if !ok {
		return "", "", errUnreadable
	}
	version, _ := protoField(meta, 6)
	return string(version), "", nil
}

// protoField returns the first field of this number that has a length. The message may be cut.
func protoField(message []byte, number protowire.Number) ([]byte, bool) {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return nil, false
		}
		message = message[size:]
		if kind != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
				return nil, false
			}
			message = message[size:]
			continue
		}
		length, size := protowire.ConsumeVarint(message)
		if size < 0 {
			return nil, false
		}
		message = message[size:]
		value := message[:min(length, uint64(len(message)))]
		if n == number {
			return value, true
		}
		message = message[len(value):]
	}
	return nil, false
}

// parseJSON reads a whole object: a body that was cut is not readable.
func parseJSON(text []byte) (string, types.UID, error) {
	var whole struct {
		Kind     string                `json:"kind"`
		Metadata metav1.ObjectMeta     `json:"metadata"`
		Details  *metav1.StatusDetails `json:"details"`
	}
	if err := json.Unmarshal(text, &whole); err != nil {
		return "", "", fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if whole.Kind == "Status" {
		if whole.Details == nil {
			return "", "", nil
		}
		return "", whole.Details.UID, nil
	}
	return whole.Metadata.ResourceVersion, "", nil
}
