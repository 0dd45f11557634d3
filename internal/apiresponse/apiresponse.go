package apiresponse

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// headSize is how much of an answer is read, in bytes: more than a usual object has.
const headSize = 256 << 10

// Object is the written object by the API server's answer.
type Object struct {
	// Version is its resourceVersion; empty if the answer has none.
	Version string
	// Gone is its UID if the answer is a Status, as after a deletion; otherwise empty.
	Gone types.UID
}

// Body returns the body of an answer, to be read in place of resp.Body. It calls told once with the
// result: within the Read that reaches the end, which returns after told has, or within Close. The
// error says that the body could not be read, or was not read up to the object's version.
func Body(resp *http.Response, told func(Object, error)) io.ReadCloser {
	contentType := resp.Header.Get("Content-Type")
	return &head{ReadCloser: resp.Body, done: func(text []byte) { told(parse(contentType, text)) }}
}

// head keeps the beginning of a body while it is read, and reports its end.
type head struct {
	io.ReadCloser
	text []byte
	once sync.Once
	done func(text []byte)
}

func (h *head) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.text = append(h.text, p[:min(n, headSize-len(h.text))]...)
	if err != nil {
		h.finish()
	}
	return n, err
}

// Close implements io.Closer. The unread rest of the body stays unknown.
func (h *head) Close() error {
	h.finish()
	return h.ReadCloser.Close()
}

func (h *head) finish() {
	h.once.Do(func() { h.done(h.text) })
}

// Resource returns the resource of an API path, by group and plural name; false for a path without
// an object or a list.
func Resource(path string) (schema.GroupResource, bool) {
	version, parts, ok := Split(path)
	if !ok {
		return schema.GroupResource{}, false
	}
	// Namespaces have subresources but contain no objects of their own resource.
	if parts[0] == "namespaces" && len(parts) >= 3 && parts[2] != "status" && parts[2] != "finalize" {
		parts = parts[2:]
	}
	return schema.GroupResource{Group: version.Group, Resource: parts[0]}, true
}

// Split returns the group and version of an API path, and the segments after them, of which there
// is at least one; false for a path without any.
func Split(path string) (version schema.GroupVersion, rest []string, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	// A server may be behind a path of its own: skip what comes before the API's.
	for len(parts) > 0 && parts[0] != "api" && parts[0] != "apis" {
		parts = parts[1:]
	}
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, parts[2:], true
	case len(parts) >= 4 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:], true
	default:
		return schema.GroupVersion{}, nil, false
	}
}

var errUnreadable = errors.New("neither the protobuf nor the JSON of an API object")

// parse reads an object's version, or the UID in a Status, from the beginning of an answer.
func parse(contentType string, text []byte) (Object, error) {
	switch {
	case strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf"):
		return parseProtobuf(text)
	case strings.HasPrefix(contentType, "application/json"):
		return parseJSON(text)
	default:
		return Object{}, fmt.Errorf("%w: %q", errUnreadable, contentType)
	}
}

var protobufMagic = []byte("k8s\x00")

// parseProtobuf reads runtime.Unknown (field 1 TypeMeta, 2 raw) and, within, ObjectMeta (field 1)
// and its resourceVersion (field 6). A Status has its details in field 5, and there the UID in
// field 6.
func parseProtobuf(text []byte) (Object, error) {
	text, ok := bytes.CutPrefix(text, protobufMagic)
	if !ok {
		return Object{}, errUnreadable
	}
	typeMeta, _ := protoField(text, 1)
	raw, ok := protoField(text, 2)
	if !ok {
		return Object{}, errUnreadable
	}
	if kind, _ := protoField(typeMeta, 2); string(kind) == "Status" {
		details, _ := protoField(raw, 5)
		uid, _ := protoField(details, 6)
		return Object{Gone: types.UID(uid)}, nil
	}
	meta, ok := protoField(raw, 1)
	if !ok {
		return Object{}, errUnreadable
	}
	version, _ := protoField(meta, 6)
	return Object{Version: string(version)}, nil
}

// Name returns the name of the object in a body, or its beginning if the server completes it
// (generateName). It is empty if there is none, or if the body cannot be read.
func Name(contentType string, text []byte) (name string, generated bool) {
	var beginning string
	if strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf") {
		text, _ = bytes.CutPrefix(text, protobufMagic)
		raw, _ := protoField(text, 2)
		meta, _ := protoField(raw, 1)
		own, _ := protoField(meta, 1)
		prefix, _ := protoField(meta, 2)
		name, beginning = string(own), string(prefix)
	} else {
		var whole struct {
			Metadata struct {
				Name         string `json:"name"`
				GenerateName string `json:"generateName"`
			} `json:"metadata"`
		}
		if json.Unmarshal(text, &whole) != nil {
			return "", false
		}
		name, beginning = whole.Metadata.Name, whole.Metadata.GenerateName
	}
	if name == "" && beginning != "" {
		return beginning, true
	}
	return name, false
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

// parseJSON reads a whole object: it cannot read a body that was cut.
func parseJSON(text []byte) (Object, error) {
	var whole struct {
		Kind     string                `json:"kind"`
		Metadata metav1.ObjectMeta     `json:"metadata"`
		Details  *metav1.StatusDetails `json:"details"`
	}
	if err := json.Unmarshal(text, &whole); err != nil {
		return Object{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	if whole.Kind == "Status" {
		if whole.Details == nil {
			return Object{}, nil
		}
		return Object{Gone: whole.Details.UID}, nil
	}
	return Object{Version: whole.Metadata.ResourceVersion}, nil
}
