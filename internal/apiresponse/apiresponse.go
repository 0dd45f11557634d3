package apiresponse

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// headSize is how much of an answer is read, in bytes: more than a usual object has.
const headSize = 256 << 10

// listSize is how much of a list is read, in bytes. A longer one is an error.
const listSize = 16 << 20

// Object is the written object by the API server's answer.
type Object struct {
	// Version is its resourceVersion; empty if the answer has none. If the write removed the
	// object, it may be the version before.
	Version string
	// Gone is its UID if the write removed it: if the answer is the Status of a deletion, or an
	// object to be deleted that nothing holds up any more. An update that takes the last finalizer
	// away has such an answer. Otherwise it is empty.
	Gone types.UID
	// Status is set if the answer is a Status, and not the object. Partial is set if it has the
	// object's metadata only: then a namespace that seems to be Gone may be there still, because
	// finalizers in its spec hold it.
	Status, Partial bool
}

// Body returns the body of an answer, to be read in place of resp.Body. It calls told once with the
// result: within the Read that reaches the end, which returns after told has, or within Close. The
// error says that the body could not be read, or was not read up to the object's version.
func Body(resp *http.Response, told func(Object, error)) io.ReadCloser {
	contentType := resp.Header.Get("Content-Type")
	return &head{ReadCloser: resp.Body, most: headSize, done: func(text []byte, _ bool) { told(parse(contentType, text)) }}
}

// Deleted is [Body] for the answer to the deletion of a collection, which lists the objects as they
// were before: told gets the UIDs of those that were not being deleted already, in the list's
// order. It is an error if an object was, and waited for the garbage collector: the deletion of a
// collection may have removed it at once.
func Deleted(resp *http.Response, told func([]types.UID, error)) io.ReadCloser {
	contentType := resp.Header.Get("Content-Type")
	return &head{ReadCloser: resp.Body, most: listSize, done: func(text []byte, whole bool) {
		if !whole {
			told(nil, fmt.Errorf("%w: a list that was not read to its end, or has %d bytes or more", errUnreadable, listSize))
			return
		}
		told(parseList(contentType, text))
	}}
}

// head keeps the beginning of a body while it is read, and reports its end.
type head struct {
	io.ReadCloser
	most int
	text []byte
	once sync.Once
	done func(text []byte, whole bool)
}

func (h *head) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.text = append(h.text, p[:min(n, h.most-len(h.text))]...)
	if err != nil {
		h.finish(errors.Is(err, io.EOF) && len(h.text) < h.most)
	}
	return n, err
}

// Close implements io.Closer. The unread rest of the body stays unknown.
func (h *head) Close() error {
	h.finish(false)
	return h.ReadCloser.Close()
}

func (h *head) finish(whole bool) {
	h.once.Do(func() {
		h.done(h.text, whole)
		h.text = nil
	})
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

// protobufObject returns the kind of a text and the object, which may be cut: fields 1 (TypeMeta)
// and 2 of runtime.Unknown.
func protobufObject(text []byte) (kind string, object []byte, err error) {
	text, ok := bytes.CutPrefix(text, protobufMagic)
	if !ok {
		return "", nil, errUnreadable
	}
	typeMeta, _ := protoField(text, 1)
	name, _ := protoField(typeMeta, 2)
	if object, ok = protoField(text, 2); !ok {
		return "", nil, errUnreadable
	}
	return string(name), object, nil
}

// parseProtobuf reads an object's ObjectMeta (field 1). A Status has its details in field 5, and
// there the UID in field 6; a Namespace its spec in field 2, and there its finalizers in field 1.
func parseProtobuf(text []byte) (Object, error) {
	kind, object, err := protobufObject(text)
	if err != nil {
		return Object{}, err
	}
	if kind == "Status" {
		details, _ := protoField(object, 5)
		uid, _ := protoField(details, 6)
		return Object{Gone: types.UID(uid), Status: true}, nil
	}
	text, ok := protoWhole(object, 1)
	if !ok {
		return Object{}, errUnreadable
	}
	about := protoMeta(text)
	if kind == "Namespace" {
		spec, ok := protoWhole(object, 2)
		if !ok {
			return Object{}, errUnreadable
		}
		_, about.held = protoField(spec, 1)
	}
	return about.object(kind), nil
}

// metadata is what is read of an object.
type metadata struct {
	UID                        types.UID `json:"uid"`
	ResourceVersion            string    `json:"resourceVersion"`
	DeletionTimestamp          *string   `json:"deletionTimestamp"`
	DeletionGracePeriodSeconds int64     `json:"deletionGracePeriodSeconds"`
	Finalizers                 []string  `json:"finalizers"`
	// held is set for a namespace with finalizers in its spec.
	held bool
}

// object returns what the metadata in an answer says. ShouldDeleteDuringUpdate, in
// k8s.io/apiserver/pkg/registry/generic/registry, decides whether an update removes an object.
func (m metadata) object(kind string) Object {
	o := Object{Version: m.ResourceVersion, Partial: kind == "PartialObjectMetadata"}
	if m.DeletionTimestamp != nil && len(m.Finalizers) == 0 && !m.held && m.DeletionGracePeriodSeconds == 0 {
		o.Gone = m.UID
	}
	return o
}

// protoMeta reads an ObjectMeta's uid (field 5), resourceVersion (6), deletionTimestamp (9),
// deletionGracePeriodSeconds (10) and finalizers (14).
func protoMeta(message []byte) (m metadata) {
	for number, f := range protoFields(message) {
		switch number {
		case 5:
			m.UID = types.UID(f.value)
		case 6:
			m.ResourceVersion = string(f.value)
		case 9:
			m.DeletionTimestamp = new(string)
		case 10:
			seconds, _ := protowire.ConsumeVarint(f.value)
			m.DeletionGracePeriodSeconds = int64(seconds)
		case 14:
			m.Finalizers = append(m.Finalizers, string(f.value))
		}
	}
	return m
}

// parseList reads the UIDs of a whole list's objects that are not being deleted.
func parseList(contentType string, text []byte) ([]types.UID, error) {
	kind, objects, err := listed(contentType, text)
	if err == nil && !strings.HasSuffix(kind, "List") {
		err = fmt.Errorf("%w: a %q in place of a list", errUnreadable, kind)
	}
	if err != nil {
		return nil, err
	}
	var uids []types.UID
	for _, m := range objects {
		switch {
		case m.DeletionTimestamp == nil:
			uids = append(uids, m.UID)
		case slices.ContainsFunc(m.Finalizers, isCollectors):
			return nil, fmt.Errorf("%w: an object that waited for the garbage collector", errUnreadable)
		}
	}
	return uids, nil
}

// isCollectors reports whether a finalizer is for the garbage collector.
func isCollectors(finalizer string) bool {
	return finalizer == metav1.FinalizerDeleteDependents || finalizer == metav1.FinalizerOrphanDependents
}

// listed returns the kind of a list and the metadata of its items: in protobuf, each is in field 2.
func listed(contentType string, text []byte) (kind string, objects []metadata, err error) {
	switch {
	case strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf"):
		kind, list, err := protobufObject(text)
		for number, f := range protoFields(list) {
			if number == 2 {
				meta, _ := protoField(f.value, 1)
				objects = append(objects, protoMeta(meta))
			}
		}
		return kind, objects, err
	case strings.HasPrefix(contentType, "application/json"):
		var list struct {
			Kind  string `json:"kind"`
			Items []struct {
				Metadata metadata `json:"metadata"`
			} `json:"items"`
		}
		if err := json.Unmarshal(text, &list); err != nil {
			return "", nil, fmt.Errorf("%w: %w", errUnreadable, err)
		}
		for _, item := range list.Items {
			objects = append(objects, item.Metadata)
		}
		return list.Kind, objects, nil
	default:
		return "", nil, fmt.Errorf("%w: %q", errUnreadable, contentType)
	}
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

// protoField returns the first field of this number. The message may be cut, and the field with it.
func protoField(message []byte, number protowire.Number) ([]byte, bool) {
	for n, f := range protoFields(message) {
		if n == number {
			return f.value, true
		}
	}
	return nil, false
}

// protoWhole is protoField for a field that must not be cut.
func protoWhole(message []byte, number protowire.Number) ([]byte, bool) {
	for n, f := range protoFields(message) {
		if n == number {
			return f.value, !f.cut
		}
	}
	return nil, false
}

// protoValue is a field's value, without its length; a number is encoded.
type protoValue struct {
	value []byte
	cut   bool
}

// protoFields returns the fields of a message in order. The message may be cut.
func protoFields(message []byte) iter.Seq2[protowire.Number, protoValue] {
	return func(yield func(protowire.Number, protoValue) bool) {
		for len(message) > 0 {
			number, kind, size := protowire.ConsumeTag(message)
			if size < 0 {
				return
			}
			message = message[size:]
			f := protoValue{}
			if kind == protowire.BytesType {
				length, size := protowire.ConsumeVarint(message)
				if size < 0 {
					return
				}
				message = message[size:]
				f.cut = length > uint64(len(message))
				f.value = message[:min(length, uint64(len(message)))]
			} else {
				if size = protowire.ConsumeFieldValue(number, kind, message); size < 0 {
					return
				}
				f.value = message[:size]
			}
			message = message[len(f.value):]
			if !yield(number, f) {
				return
			}
		}
	}
}

// parseJSON reads a whole object: it cannot read a body that was cut.
func parseJSON(text []byte) (Object, error) {
	var whole struct {
		Kind     string                `json:"kind"`
		Metadata metadata              `json:"metadata"`
		Details  *metav1.StatusDetails `json:"details"`
	}
	if err := json.Unmarshal(text, &whole); err != nil {
		return Object{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	switch whole.Kind {
	case "Status":
		if whole.Details == nil {
			return Object{Status: true}, nil
		}
		return Object{Gone: whole.Details.UID, Status: true}, nil
	case "Namespace":
		var namespace struct {
			Spec struct {
				Finalizers []string `json:"finalizers"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(text, &namespace); err != nil {
			return Object{}, fmt.Errorf("%w: %w", errUnreadable, err)
		}
		whole.Metadata.held = len(namespace.Spec.Finalizers) > 0
	}
	return whole.Metadata.object(whole.Kind), nil
}
