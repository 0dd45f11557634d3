package flotilla

import (
	"cmp"
	"fmt"
	"iter"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// The sections of the guide that a report refers to.
const (
	musts = "docs/library.md#what-must-be-true-of-your-controller"
	steps = "docs/library.md#from-one-leader-to-a-fleet-in-ten-steps"
	holds = "docs/library.md#what-a-shards-informers-hold"
)

// Report is the result of [Fleet.Check].
type Report struct {
	// Findings are the requests outside of the ranges, writes first.
	Findings []Finding
	// Idle are the ranges in whose namespaces their own controllers have written nothing. The
	// report cannot judge them: give the controllers work, in namespaces of these ranges. What a
	// controller writes in the other range does not count, nor do cluster-scoped objects and events
	// about them: it may do that without any work of its own. A controller that writes nothing else
	// is always idle here; judge it by Findings. What it writes to another server, through
	// [Shard.Wrap], counts.
	Idle []shard.ID
}

// Finding is one kind of request that a controller sent outside of its range. Requests for
// cluster-scoped objects count only if they write.
type Finding struct {
	// Access is the first such request.
	Access
	// Count is the number of such requests, on both ranges together.
	Count int
	// Caller is the function that sent them and its place in the source: the innermost one outside
	// of client libraries. It is empty if there is none, as for an informer.
	Caller string
	// Informer reports whether the requests fill an informer of the controller's own.
	Informer bool
	// ClusterScoped reports whether the objects lie in no namespace.
	ClusterScoped bool
}

// Err returns nil if nothing in the report speaks against running the controllers as a fleet: no
// findings that are not allowed, and work for both ranges. Err calls allowed, which may be nil, for
// each finding. allowed returns true for findings that you have reviewed, such as a Secret that is
// read from another namespace on purpose.
func (r *Report) Err(allowed func(Finding) bool) error {
	left := Report{Idle: r.Idle}
	for _, f := range r.Findings {
		if allowed == nil || !allowed(f) {
			left.Findings = append(left.Findings, f)
		}
	}
	if len(left.Findings) == 0 && len(left.Idle) == 0 {
		return nil
	}
	return fmt.Errorf("the controllers cannot be divided as they are: %s", left.String())
}

// String returns a line for each finding, and below it what to do about it.
func (r *Report) String() string {
	var b strings.Builder
	switch len(r.Findings) {
	case 0:
		b.WriteString("no requests outside of the ranges\n")
	case 1:
		b.WriteString("one kind of request outside of the ranges\n")
	default:
		fmt.Fprintf(&b, "%d kinds of requests outside of the ranges\n", len(r.Findings))
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "- %s\n  %s\n", f, strings.ReplaceAll(f.Advice(), "\n", "\n  "))
	}
	for _, id := range r.Idle {
		fmt.Fprintf(&b, "- On %v the controllers have written nothing, so nothing is known of it.\n"+
			"  Work on more namespaces, whose names differ in their first letters.\n  See %s\n", id, steps)
	}
	return b.String()
}

// String returns what was done, how often and where.
func (f Finding) String() string {
	what := f.Resource.GroupResource().String()
	if f.Subresource != "" {
		what += "/" + f.Subresource
	}
	where := "in namespace " + f.Namespace
	switch {
	case f.ClusterScoped:
		where = "in no namespace"
	case f.Namespace == "":
		where = "in all namespaces"
	}
	by := ""
	switch {
	case f.Informer:
		by = ", by an informer of its own"
	case f.Caller != "":
		by = ", in " + f.Caller
	}
	times := "once"
	if f.Count > 1 {
		times = fmt.Sprintf("%d times", f.Count)
	}
	return fmt.Sprintf("%s: %s %s %s, %s%s", f.Controller, f.Verb, what, where, times, by)
}

// Advice says what to change, and on another line where to read about it.
func (f Finding) Advice() string {
	lease := f.Resource.Group == "coordination.k8s.io" && f.Resource.Resource == "leases"
	advice, see := "", musts
	switch {
	case lease && f.Writes():
		advice, see = "Remove the leader election: the fleet takes its place.", steps
	case f.Writes() && f.ClusterScoped:
		advice = "Each range may make this write: let it be the same from all, or make it a singleton's."
	case f.Writes():
		advice = "Two owners could write there, so Shard.Config refuses it: leave it to a controller " +
			"of that namespace, or make this one a singleton."
	case f.Informer:
		advice, see = "Take the informer from Shard.Informers: it holds the objects of the range.", holds
	case f.Namespace == "":
		advice, see = "Read the range's objects from Shard.Informers or the manager's cached client. "+
			"What decides by all namespaces is a singleton.", holds
	default:
		advice = "The answer is current, but no event follows when the object changes. If one " +
			"must, make this a singleton."
	}
	return advice + "\nSee " + see
}

// notes collects the findings of a check. Its methods may be called concurrently.
type notes struct {
	logger     klog.Logger
	namespaced func(schema.GroupVersionResource) (bool, error)

	mu    sync.Mutex
	found map[noteKey]*Finding
	order []*Finding
}

// noteKey identifies requests of one kind.
type noteKey struct {
	controller, verb, subresource, namespace, caller string

	resource schema.GroupVersionResource
}

func newNotes(
	logger klog.Logger, namespaced func(schema.GroupVersionResource) (bool, error),
) *notes {
	return &notes{logger: logger, namespaced: namespaced, found: map[noteKey]*Finding{}}
}

// note records a request. It must be called from the goroutine that sends it.
func (n *notes) note(a Access) {
	clusterScoped := false
	if a.Namespace == "" {
		is, err := n.namespaced(a.Resource)
		if err != nil {
			n.logger.Info("Could not find out whether a kind is namespaced, taking it for one",
				"resource", a.Resource, "err", err)
		}
		// Namespaces are divided between ranges too.
		clusterScoped = err == nil && !is && a.Resource.GroupResource() != namespaces
	}
	if clusterScoped && !a.Writes() || isEventOfNoNamespace(a) {
		return
	}
	caller, informs := callerOf()
	key := noteKey{a.Controller, a.Verb, a.Subresource, a.Namespace, caller, a.Resource}
	n.mu.Lock()
	defer n.mu.Unlock()
	f := n.found[key]
	if f == nil {
		f = &Finding{Access: a, Caller: caller, Informer: informs, ClusterScoped: clusterScoped}
		n.found[key] = f
		n.order = append(n.order, f)
	}
	f.Count++
}

var namespaces = schema.GroupResource{Resource: "namespaces"}

// isEventOfNoNamespace reports whether a request records an event about a cluster-scoped object.
// Such events lie in the namespace default, where two writers do no harm.
func isEventOfNoNamespace(a Access) bool {
	return isEvent(a.Resource) && a.Namespace == "default" &&
		(a.Method == http.MethodPost || a.Method == http.MethodPatch)
}

func isEvent(r schema.GroupVersionResource) bool {
	return r.Resource == "events" && (r.Group == "" || r.Group == "events.k8s.io")
}

// findings returns the findings: writes first, then sorted by controller and the order in which
// they came.
func (n *notes) findings() []Finding {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []Finding
	for _, f := range n.order {
		all = append(all, *f)
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		if a.Writes() != b.Writes() {
			if a.Writes() {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Controller, b.Controller)
	})
	return all
}

// clients are the prefixes of the names of functions that lie between a controller and the wire.
var clients = []string{
	"runtime.", "net/http.", "k8s.io/client-go/", "k8s.io/apimachinery/",
	"sigs.k8s.io/controller-runtime/",
	"github.com/flotilla-kube/flotilla/pkg/flotilla.",
	"github.com/flotilla-kube/flotilla/pkg/manager.",
}

// callers returns the functions on this goroutine's stack, the innermost first.
func callers() iter.Seq[runtime.Frame] {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])]) // skips itself and its caller
	return func(yield func(runtime.Frame) bool) {
		for more := true; more; {
			var frame runtime.Frame
			if frame, more = frames.Next(); !yield(frame) {
				return
			}
		}
	}
}

// callerOf returns the function that sends a request on this goroutine, and whether an informer
// sends it: the goroutines of informers begin in client-go.
func callerOf() (caller string, informs bool) {
	for frame := range callers() {
		if strings.HasPrefix(frame.Function, "k8s.io/client-go/tools/cache.(*Reflector)") {
			return "", true
		}
		generated := strings.Contains(frame.Function, "/clientset/")
		if caller == "" && frame.Function != "" && !generated && !isClient(frame) {
			_, function, _ := strings.Cut(frame.Function[strings.LastIndex(frame.Function, "/")+1:], ".")
			caller = fmt.Sprintf("%s (%s:%d)", function, filepath.Base(frame.File), frame.Line)
		}
	}
	return caller, false
}

// isForThePool reports whether an informer of the process sends a request on this goroutine.
func isForThePool() bool {
	for frame := range callers() {
		if strings.HasPrefix(frame.Function, "github.com/flotilla-kube/flotilla/pkg/informer.") {
			return true
		}
	}
	return false
}

func isClient(f runtime.Frame) bool {
	return !strings.HasSuffix(f.File, "_test.go") &&
		slices.ContainsFunc(clients, func(c string) bool { return strings.HasPrefix(f.Function, c) })
}
