package wire

import (
	"bytes"
	"encoding/binary"
	"io"
	"mime"
	"net/http"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields says which fields of ObjectMeta to drop, by their numbers in apimachinery's
// pkg/apis/meta/v1/generated.proto.
type Fields func(field protowire.Number) bool

// Drop returns a transport whose watches lack these fields of objects' metadata. Everything else
// passes unchanged.
func Drop(next http.RoundTripper, fields Fields) http.RoundTripper {
	return transport{next, fields}
}

type transport struct {
	next http.RoundTripper
	drop Fields
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusOK && isWatch(resp.Header) {
		resp.Body = &frames{body: resp.Body, drop: t.drop}
	}
	return resp, err
}

// WrappedRoundTripper implements k8s.io/apimachinery/pkg/util/net.RoundTripperWrapper.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

func isWatch(h http.Header) bool {
	mediaType, parameters, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && mediaType == "application/vnd.kubernetes.protobuf" && parameters["stream"] == "watch"
}

// A frame is an event with its length before it, in headSize bytes (apimachinery's
// pkg/util/framer). Longer ones than longest are passed on unread, and larger buffers than pooled
// are not kept.
const (
	headSize = 4
	longest  = 1 << 20
	pooled   = 64 << 10
)

// buffers hold the frames that are being passed on.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// frames is a watch's body. Like that, it is read by one goroutine at a time.
type frames struct {
	body io.ReadCloser
	drop Fields
	head [headSize]byte
	// buffer belongs to the frame under way, nil if it has none. left is what is still to be read of
	// it, and unread how much of it is still in body.
	buffer *[]byte
	left   []byte
	unread int64
	// err is what follows left.
	err error
}

// Read implements io.Reader.
func (f *frames) Read(p []byte) (int, error) {
	for len(f.left) == 0 {
		switch {
		case f.err != nil:
			return 0, f.err
		case f.unread > 0:
			n, err := f.body.Read(p[:min(int64(len(p)), f.unread)])
			f.unread -= int64(n)
			return n, err
		default:
			f.next()
		}
	}
	n := copy(p, f.left)
	if f.left = f.left[n:]; len(f.left) == 0 {
		f.release()
	}
	return n, nil
}

// Close implements io.Closer. It may be called during a Read, so it leaves the buffer alone.
func (f *frames) Close() error { return f.body.Close() }

// next reads the next frame, or what there is of it before an error.
func (f *frames) next() {
	n, err := io.ReadFull(f.body, f.head[:])
	size := int64(binary.BigEndian.Uint32(f.head[:]))
	if err != nil || size > longest {
		f.left, f.unread, f.err = f.head[:n], size, err
		return
	}
	f.buffer = buffers.Get().(*[]byte)
	*f.buffer = append((*f.buffer)[:0], f.head[:]...)
	*f.buffer = append(*f.buffer, make([]byte, size)...)
	whole := *f.buffer
	n, err = io.ReadFull(f.body, whole[headSize:])
	if err != nil {
		f.left, f.err = whole[:headSize+n], err
		return
	}
	event := without(whole[headSize:], f.drop)
	binary.BigEndian.PutUint32(whole, uint32(len(event)))
	f.left = whole[:headSize+len(event)]
}

// release gives up the buffer of a frame that has been read to its end.
func (f *frames) release() {
	if f.buffer != nil && cap(*f.buffer) <= pooled {
		buffers.Put(f.buffer)
	}
	f.buffer, f.left = nil, nil
}

// The messages around an object's metadata: metav1.WatchEvent (1 type, 2 object), there
// runtime.RawExtension (1 raw), there after a magic number runtime.Unknown (1 TypeMeta, 2 raw, 3
// encoding), and there the object, whose metadata is field 1 in all kinds but lists and Status.
var magic = []byte("k8s\x00")

// without drops fields of the metadata of the object in an event, in place, and returns what
// remains. An event that cannot be read, or has no object, is returned as it is.
func without(event []byte, drop Fields) []byte {
	switch kind, _ := field(event, span{end: len(event)}, 1); string(kind.of(event)) {
	case "ADDED", "MODIFIED", "DELETED":
	default:
		return event
	}
	object, ok := field(event, span{end: len(event)}, 2)
	if !ok {
		return event
	}
	raw, ok := field(event, object, 1)
	if !ok || !bytes.HasPrefix(raw.of(event), magic) {
		return event
	}
	unknown := span{start: raw.start + len(magic), end: raw.end}
	if encoding, _ := field(event, unknown, 3); len(encoding.of(event)) > 0 {
		return event
	}
	typeMeta, _ := field(event, unknown, 1)
	if kind, _ := field(event, typeMeta, 2); string(kind.of(event)) == "Status" {
		return event
	}
	content, ok := field(event, unknown, 2)
	if !ok {
		return event
	}
	meta, ok := field(event, content, 1)
	if !ok || !readable(meta.of(event)) {
		return event
	}
	end := compact(event, meta, drop)
	saved := meta.end - end
	if saved == 0 {
		return event
	}
	for _, s := range []span{object, raw, content, meta} {
		s.resize(event, s.end-s.start-saved)
	}
	return append(event[:end], event[meta.end:]...)
}

// span is where the content of a field is in an event, and where its length begins.
type span struct{ length, start, end int }

func (s span) of(event []byte) []byte { return event[s.start:s.end] }

// resize writes a smaller length over the one that was there, in as many bytes: the encoding allows
// more than are needed (https://protobuf.dev/programming-guides/encoding/#varints).
func (s span) resize(event []byte, size int) {
	width := s.start - s.length
	for i := range width {
		b := byte(size>>(7*i)) & 0x7f
		if i < width-1 {
			b |= 0x80
		}
		event[s.length+i] = b
	}
}

// field returns the first field of this number that has a length; false if the message has none, or
// cannot be read up to it.
func field(event []byte, message span, number protowire.Number) (span, bool) {
	for at := message.start; at < message.end; {
		n, kind, size := protowire.ConsumeTag(event[at:message.end])
		if size < 0 {
			return span{}, false
		}
		at += size
		if size = protowire.ConsumeFieldValue(n, kind, event[at:message.end]); size < 0 {
			return span{}, false
		}
		if n == number && kind == protowire.BytesType {
			_, width := protowire.ConsumeVarint(event[at:])
			return span{at, at + width, at + size}, true
		}
		at += size
	}
	return span{}, false
}

// readable reports whether a message can be read to its end.
func readable(message []byte) bool {
	for len(message) > 0 {
		_, _, size := protowire.ConsumeField(message)
		if size < 0 {
			return false
		}
		message = message[size:]
	}
	return true
}

// compact moves the fields that stay to the beginning of a readable message, and returns where they
// end.
func compact(event []byte, message span, drop Fields) int {
	end := message.start
	for at := message.start; at < message.end; {
		n, _, size := protowire.ConsumeField(event[at:message.end])
		if !drop(n) {
			end += copy(event[end:], event[at:at+size])
		}
		at += size
	}
	return end
}
