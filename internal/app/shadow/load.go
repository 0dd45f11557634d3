package shadow

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// maxRead bounds the kinds of reads that are counted separately; all others count as one.
const maxRead = 1000

// Read counts the reads of one resource by one verb.
type Read struct {
	Verb     string `json:"verb"`
	Resource string `json:"resource"`
	// Requests were answered, Refused of them with 403. Open are the watches in progress.
	Requests int64 `json:"requests"`
	Refused  int64 `json:"refused,omitempty"`
	Open     int64 `json:"open,omitempty"`
	// Bytes are those of answers' bodies. Events are those of watches, including bookmarks and the
	// objects that a watch begins with.
	Bytes  int64 `json:"bytes"`
	Events int64 `json:"events,omitempty"`
}

// load counts what is read.
type load struct {
	mu  sync.Mutex
	all map[readKind]*counts
}

type readKind struct{ verb, resource string }

type counts struct{ requests, refused, open, bytes, events atomic.Int64 }

func newLoad() *load { return &load{all: map[readKind]*counts{}} }

func (l *load) of(r request) *counts {
	kind := readKind{r.Verb, r.Kind.Name()}
	if r.path {
		kind.resource = "(discovery and other paths)"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all[kind] == nil && len(l.all) >= maxRead {
		kind = readKind{r.Verb, "(others)"}
	}
	c := l.all[kind]
	if c == nil {
		c = &counts{}
		l.all[kind] = c
	}
	return c
}

// follow counts an answer, and its body while that is read.
func (l *load) follow(r request, resp *http.Response) {
	c := l.of(r)
	c.requests.Add(1)
	if resp.StatusCode == http.StatusForbidden {
		c.refused.Add(1)
	}
	if resp.Body == nil {
		return
	}
	body := &followed{ReadCloser: resp.Body, counts: c, ended: func() {}}
	if r.Verb == "watch" && resp.StatusCode == http.StatusOK {
		body.frames = framesOf(resp.Header.Get("Content-Type"))
		c.open.Add(1)
		body.ended = sync.OnceFunc(func() { c.open.Add(-1) })
	}
	resp.Body = body
}

// followed is an answer's body.
type followed struct {
	io.ReadCloser
	counts *counts
	frames func(p []byte) int64 // nil where there are no events
	ended  func()
}

// Read implements io.Reader.
func (f *followed) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	f.counts.bytes.Add(int64(n))
	if f.frames != nil {
		f.counts.events.Add(f.frames(p[:n]))
	}
	if err != nil {
		f.ended()
	}
	return n, err
}

// Close implements io.Closer.
func (f *followed) Close() error {
	f.ended()
	return f.ReadCloser.Close()
}

// framesOf returns a function that counts the events in the pieces of a watch's body.
func framesOf(contentType string) func([]byte) int64 {
	if !strings.HasPrefix(contentType, "application/vnd.kubernetes.protobuf") {
		return func(p []byte) int64 { return int64(bytes.Count(p, []byte{'\n'})) }
	}
	// Each event is preceded by its length in four bytes.
	var length []byte
	var left uint32
	return func(p []byte) (n int64) {
		for len(p) > 0 {
			if left > 0 {
				skip := min(left, uint32(min(len(p), 1<<30)))
				left -= skip
				p = p[skip:]
				continue
			}
			length = append(length, p[0])
			p = p[1:]
			if len(length) == 4 {
				left = binary.BigEndian.Uint32(length)
				length = length[:0]
				n++
			}
		}
		return n
	}
}

// list returns what has been counted, most bytes first.
func (l *load) list() []Read {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Read, 0, len(l.all))
	for kind, c := range l.all {
		all = append(all, Read{
			Verb: kind.verb, Resource: kind.resource, Requests: c.requests.Load(), Refused: c.refused.Load(),
			Open: c.open.Load(), Bytes: c.bytes.Load(), Events: c.events.Load(),
		})
	}
	slices.SortFunc(all, func(a, b Read) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Verb, b.Verb))
	})
	return all
}

// total is the sum of all reads.
func total(all []Read) (sum Read) {
	for _, r := range all {
		sum.Requests += r.Requests
		sum.Refused += r.Refused
		sum.Open += r.Open
		sum.Bytes += r.Bytes
		sum.Events += r.Events
	}
	return sum
}

// RefusedReads names the reads for caches that the API server refuses to the shadow: "list
// secrets".
func (s *Shadow) RefusedReads() []string {
	var all []string
	for _, read := range s.load.list() {
		if read.Refused > 0 && (read.Verb == "list" || read.Verb == "watch") {
			all = append(all, read.Verb+" "+read.Resource)
		}
	}
	slices.Sort(all)
	return all
}
