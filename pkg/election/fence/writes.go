package fence

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/flotilla-kube/flotilla/internal/answer"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// mostGone is how many deletions are kept for one resource. Those before are older than the last
// version kept, or have long been seen by whoever watches.
const mostGone = 32

// Writes says up to where a cache must have come to have seen what a holder wrote last. It is what
// makes a planned handoff start from a cache that is no older than its predecessor's last write.
type Writes struct {
	// Term of the holder. Writes left by another term than the last prove nothing.
	Term int32 `json:"term"`
	// Shared is set if others may have written to some of what the holder covers in this term,
	// until its work began: a holder before it that died, or those of other Leases. What they wrote
	// is not among Resources.
	Shared bool `json:"shared,omitempty"`
	// Resources by what was written last.
	Resources map[string]LastWrite `json:"resources,omitempty"`
}

// LastWrite is the last write to one resource.
type LastWrite struct {
	// Version is the highest resourceVersion that a write was answered with; empty if none had one.
	Version string `json:"version,omitempty"`
	// Gone are the objects that were deleted without an answer that has a version, the latest.
	Gone []types.UID `json:"gone,omitempty"`
	// Unknown is set if an answer was lost, said that the server does not know itself (5xx), or
	// could not be read: then nothing proves that a cache has seen the write.
	Unknown bool `json:"unknown,omitempty"`
}

// ParseWrites reads what the holder of a term has left, as [Writes.Annotation] wrote it, and
// reports whether that proves anything: it does not if it is of another term or cannot be read.
func ParseWrites(text string, term int32) (Writes, bool) {
	var w Writes
	if err := json.Unmarshal([]byte(text), &w); err != nil || w.Term != term {
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

// unanswered records that a write was sent and nobody knows what became of it: the answer was lost,
// or a server has given up waiting for one behind it, which may have carried the write out.
func (l *writeLog) unanswered(req *http.Request) {
	if resource, ok := answer.Resource(req.URL.Path); ok {
		l.change(resource.String(), func(last *LastWrite) { last.Unknown = true })
	}
}

// answered takes in the answer to a write. It returns the body to hand on, which is read through.
func (l *writeLog) answered(req *http.Request, resp *http.Response) io.ReadCloser {
	resource, ok := answer.Resource(req.URL.Path)
	if resp.StatusCode >= http.StatusInternalServerError {
		l.unanswered(req)
	}
	// A switch of protocols is no answer about an object.
	if !ok || resp.StatusCode < 200 || resp.StatusCode >= 300 {
		return resp.Body
	}
	return answer.Body(resp, func(object answer.Object, err error) {
		l.change(resource.String(), func(last *LastWrite) {
			switch {
			case err != nil:
				last.Unknown = true
			case object.Version != "":
				if answer.Newer(object.Version, last.Version) {
					last.Version = object.Version
				}
			case object.Gone != "" && req.Method == http.MethodDelete:
				last.Gone = append(last.Gone, object.Gone)
				last.Gone = last.Gone[max(0, len(last.Gone)-mostGone):]
			}
		})
	})
}
