package events

import (
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/internal/faults"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Config configures a Recorder. All of it is required.
type Config struct {
	// Fleet and Member are the fleet's and the member's name, Namespace that of the Leases.
	Fleet, Member, Namespace string
	// Events takes the Kubernetes events. It must not log them as well.
	Events record.EventRecorder
	// Count counts each event. It must not block.
	Count func(fleet.Event)
	// Logger takes the log lines.
	Logger klog.Logger
}

// Recorder says what happens. Observe is safe for concurrent use.
type Recorder struct {
	config Config

	mu sync.Mutex
	// failing is how the requests for a Lease fail at present, by its name.
	failing map[string]metav1.StatusReason
}

// NewRecorder returns a recorder.
func NewRecorder(c Config) *Recorder {
	return &Recorder{config: c, failing: map[string]metav1.StatusReason{}}
}

// Observe is what a member reports its events to. It does not block.
func (r *Recorder) Observe(e fleet.Event) {
	if faults.Bare {
		return
	}
	r.config.Count(e)
	of := entryOf(r.config.Fleet, e)
	if r.isRepeated(e) {
		of.level = 1
	}
	if of.message != "" {
		r.log(e, of)
	}
	if of.reason != "" {
		r.config.Events.Event(&v1.ObjectReference{
			APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease", Namespace: r.config.Namespace, Name: e.Name,
		}, of.kind(), of.reason, of.note)
	}
}

func (r *Recorder) log(e fleet.Event, of entry) {
	values := []any{"lease", e.Name}
	if e.ID != (shard.ID{}) {
		values = append(values, "ring", e.ID.Ring, "shard", e.ID.Name)
	}
	values = append(values, "member", r.config.Member)
	if e.Term > 0 {
		values = append(values, "term", e.Term)
	}
	values = append(values, of.values...)
	switch logger := r.config.Logger.V(of.level); {
	case !logger.Enabled():
	case of.failed:
		logger.Error(of.err, of.message, values...)
	default:
		logger.Info(of.message, values...)
	}
}

// isRepeated reports whether the event is a failure like the last one of the same Lease, with
// nothing between that succeeded. While the API server is away there is one every other second for
// each shard.
func (r *Recorder) isRepeated(e fleet.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Type {
	case election.EventFailed, fleet.EventLeaderLock + election.EventFailed:
		why := apierrors.ReasonForError(e.Err)
		last, failing := r.failing[e.Name]
		r.failing[e.Name] = why
		return failing && last == why
	case election.EventAcquired, election.EventRenewed, election.EventReleased, election.EventAsked, fleet.EventForgotten,
		fleet.EventLeaderLock + election.EventAcquired, fleet.EventLeaderLock + election.EventRenewed:
		delete(r.failing, e.Name)
	}
	return false
}
