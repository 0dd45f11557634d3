package fence

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flotilla-kube/flotilla/internal/apiresponse"
)

// mostGone is how many deletions are kept for one resource. Earlier ones are older than the last
// version kept, or watchers have long seen them. (The API server deletes a collection in the order
// of its list, with one worker unless --delete-collection-workers says otherwise.)
const mostGone = 32

// Writes says how far a cache must have come to include a holder's last writes. With it the next
// holder in a handoff starts from caches that are no older than these writes.
type Writes struct {
	// Term of the holder. Writes from any but the last term prove nothing.
	Term int32 `json:"term"`
	// Shared is set if, in this term but before its work began, others may have written to part of
	// the holder's scope: a previous holder that died, or holders of other Leases. Resources lacks
	// their writes.
	Shared bool `json:"shared,omitempty"`
	// Resources has the last write to each resource.
	Resources map[string]LastWrite `json:"resources,omitempty"`
}

// LastWrite is the last write to one resource.
type LastWrite struct {
	// Mark has the highest resourceVersion in the answer to a write, the objects last removed with
	// an answer that had no version or the one before, and those last deleted with their collection.
	apiresponse.Mark
	// Unknown is set if nothing proves that a cache has seen a write: its answer was lost, was a
	// server error (5xx), could not be read, or did not say what was written; or the deletion of a
	// collection was refused, perhaps halfway.
	Unknown bool `json:"unknown,omitempty"`
}

// ParseWrites parses an annotation that [Writes.Annotation] wrote, and reports whether it proves
// anything. It does not if it is of another term or cannot be read.
func ParseWrites(text string, term int32) (Writes, bool) {
	var w Writes
	if err := json.Unmarshal([]byte(text), &w); err != nil || w.Term != term {
		return Writes{}, false
	}
	return w, true
}

// mostText is how long an annotation may be, in bytes: all annotations of an object together may
// have 256 KiB, and a Lease that exceeds them could not be released.
const mostText = 64 << 10

// Annotation returns the writes as the text of an annotation. If it would be too long, deleted
// objects are left out, and their resources are Unknown.
func (w Writes) Annotation() string {
	text := w.text()
	if len(text) <= mostText {
		return text
	}
	short := Writes{Term: w.Term, Shared: w.Shared, Resources: make(map[string]LastWrite, len(w.Resources))}
	for name, last := range w.Resources {
		short.Resources[name] = LastWrite{
			Mark:    apiresponse.Mark{Version: last.Version},
			Unknown: last.Unknown || len(last.Gone)+len(last.Deleted) > 0,
		}
	}
	return short.text()
}

func (w Writes) text() string {
	text, err := json.Marshal(w)
	if err != nil {
		return "" // cannot happen: Writes has only strings, numbers and booleans
	}
	return string(text)
}

// Unknown returns the resources whose last write is not known, sorted.
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

// Marks returns what caches must have seen, by parsed name.
func (w Writes) Marks() map[schema.GroupResource]apiresponse.Mark {
	out := make(map[schema.GroupResource]apiresponse.Mark, len(w.Resources))
	for name, last := range w.Resources {
		out[schema.ParseGroupResource(name)] = last.Mark
	}
	return out
}

// writeLog collects the answers to the writes of one fence.
type writeLog struct {
	mu        sync.Mutex
	resources map[string]LastWrite
	// underWay counts the writes that have passed and whose answer has not been read, by resource.
	underWay map[string]int
	// idle is closed when there are none; nil while nobody waits for that.
	idle chan struct{}
}

// begin records that a write to the resource of this name has passed. Call ended once its answer
// has been recorded.
func (l *writeLog) begin(name string) (ended func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.underWay == nil {
		l.underWay = map[string]int{}
	}
	l.underWay[name]++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.underWay[name]--; l.underWay[name] == 0 {
			delete(l.underWay, name)
		}
		if len(l.underWay) == 0 && l.idle != nil {
			close(l.idle)
			l.idle = nil
		}
	})
}

// quiet returns a channel that is closed once no write is under way; nil if none is.
func (l *writeLog) quiet() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.underWay) == 0 {
		return nil
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	return l.idle
}

func (l *writeLog) writes(term int32) Writes {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := Writes{Term: term, Resources: make(map[string]LastWrite, len(l.resources))}
	for name, last := range l.resources {
		last.Gone, last.Deleted = slices.Clone(last.Gone), slices.Clone(last.Deleted)
		w.Resources[name] = last
	}
	for name := range l.underWay {
		if last := w.Resources[name]; name != "" {
			last.Unknown = true
			w.Resources[name] = last
		}
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

// unanswered records that the outcome of a write to an API path is unknown: the answer was lost, or
// a server gave up waiting for another behind it, which may have executed the write.
func (l *writeLog) unanswered(path string) {
	if resource, ok := apiresponse.Resource(path); ok {
		l.change(resource.String(), func(last *LastWrite) { last.Unknown = true })
	}
}

// answered records the answer to a write to an API path as its body is read. It returns the body to
// pass on.
func (l *writeLog) answered(method, path string, resp *http.Response) io.ReadCloser {
	resource, ok := apiresponse.Resource(path)
	collection := method == http.MethodDelete && apiresponse.IsCollection(path)
	if resp.StatusCode >= http.StatusInternalServerError || collection && perhapsHalfway(resp) {
		l.unanswered(path)
	}
	// A protocol switch (101) does not carry an object.
	if !ok || resp.StatusCode < 200 || resp.StatusCode >= 300 {
		return resp.Body
	}
	if collection {
		return apiresponse.Deleted(resp, func(deleted []types.UID, err error) {
			l.change(resource.String(), func(last *LastWrite) {
				last.Unknown = last.Unknown || err != nil
				last.Deleted = lastOf(last.Deleted, deleted...)
			})
		})
	}
	return apiresponse.Body(resp, func(object apiresponse.Object, err error) {
		l.change(resource.String(), func(last *LastWrite) {
			switch {
			case err != nil,
				object.Status && (object.Gone == "" || method != http.MethodDelete),
				object.Partial && object.Gone != "" && resource == namespaces:
				last.Unknown = true
				return
			}
			if object.Version != "" && apiresponse.Newer(object.Version, last.Version) {
				last.Version = object.Version
			}
			if object.Gone != "" {
				last.Gone = lastOf(last.Gone, object.Gone)
			}
		})
	})
}

var namespaces = schema.GroupResource{Resource: "namespaces"}

// perhapsHalfway reports whether the deletion of a collection with this answer may have deleted some
// of it. The API server deletes one object after another, and stops at the first that it may not
// delete, with an answer that may be a webhook's. It does not stop for an object that is not found,
// and it refuses in plain text what comes too often.
func perhapsHalfway(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusNotFound:
		return false
	case http.StatusTooManyRequests:
		return !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain")
	default:
		return resp.StatusCode >= http.StatusBadRequest
	}
}

// lastOf returns the last mostGone of all and more.
func lastOf(all []types.UID, more ...types.UID) []types.UID {
	all = append(all, more...)
	return slices.Clone(all[max(0, len(all)-mostGone):])
}
