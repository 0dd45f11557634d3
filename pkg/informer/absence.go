package informer

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// failureCounts is for how long a failed request says that a resource cannot be read. Reflectors
// try again within half a minute, and a request may wait as long for a webhook.
const failureCounts = 2 * time.Minute

// absenceCounts is for how long, at most, an answer that there is no such resource serves other
// informers too. A single Reflector asks about as often.
const absenceCounts = 30 * time.Second

// absence records whether the API server has a resource, by its last answer to a list or watch. A
// built-in resource may be missing too: the API is turned off, or newer than the server. Informers
// of an absent resource keep trying; nobody who waits for all informers of a factory waits for
// them. The informers of a process ask together: a cluster in which definitions come and go may
// leave a hundred absent resources behind, each with an informer in every range. Methods may be
// called concurrently.
type absence struct {
	mu sync.Mutex
	// noted is closed while the resource is absent.
	noted chan struct{}
	// gone is the API server's last answer if that was that there is no such resource, and nil
	// otherwise: a list in the form of a watch may have failed because the server knows none, and
	// the Reflector then asks for a plain one. since is when the first of these answers came, and
	// asked when the last request was let through.
	gone         error
	since, asked time.Time
	// failed is when the last request failed although the resource may be there; zero if it did
	// not.
	failed time.Time
}

// absenceOf returns the absence of a resource.
func (p *Pool) absenceOf(gvr schema.GroupVersionResource) *absence {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, known := p.absences[gvr]
	if !known {
		a = &absence{noted: make(chan struct{})}
		p.absences[gvr] = a
	}
	return a
}

// Failing returns the resources that cannot be read at the moment, in order: the last request for
// each was refused or not answered, as with a conversion webhook that is down. Resources that the
// API server does not have are left out.
func (p *Pool) Failing() []schema.GroupResource {
	p.mu.Lock()
	defer p.mu.Unlock()
	var failing []schema.GroupResource
	for gvr, a := range p.absences {
		if resource := gvr.GroupResource(); a.failing(p.config.Clock.Now()) && !slices.Contains(failing, resource) {
			failing = append(failing, resource)
		}
	}
	slices.SortFunc(failing, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return failing
}

// failing reports whether the last request failed although the resource may be there. If nobody has
// asked again, that is forgotten.
func (a *absence) failing(now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.failed.IsZero() && now.Sub(a.failed) < failureCounts
}

// note records the answer to a request that ended now, and reports whether it is the first of a
// series of failures.
func (a *absence) note(err error, now time.Time) (began bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil && !apierrors.IsNotFound(err) {
		began, a.failed = a.failed.IsZero(), now
		a.gone = nil
		return began
	}
	a.failed = time.Time{}
	if err != nil && a.gone == nil {
		a.since, a.asked = now, now
	}
	a.gone = err
	a.setLocked(err != nil)
	return false
}

// ask returns nil if a request may be sent, and otherwise the last answer, which still counts: for
// as long as the resource had been absent when it was last asked for, at most absenceCounts. So a
// new resource is soon found.
func (a *absence) ask(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone != nil && now.Sub(a.asked) < min(a.asked.Sub(a.since), absenceCounts) {
		return a.gone
	}
	a.asked = now
	return nil
}

// expect lets the next request through: somebody wants the resource, and may know that it has come.
func (a *absence) expect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = nil
}

// begun records that a list in the form of a watch has begun. That may still fail.
func (a *absence) begun() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = nil
	a.setLocked(false)
}

func (a *absence) setLocked(absent bool) {
	was := false
	select {
	case <-a.noted:
		was = true
	default:
	}
	switch {
	case absent && !was:
		close(a.noted)
	case !absent && was:
		a.noted = make(chan struct{})
	}
}

// done returns a channel that is closed while the resource is absent; call it again for each wait.
func (a *absence) done() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.noted
}

// is reports whether the resource is absent.
func (a *absence) is() bool {
	select {
	case <-a.done():
		return true
	default:
		return false
	}
}

// awaitSynced returns nil once the checker is done, and absent once the API server has said that it
// does not have the resource. The error is ctx's cause.
func (a *absence) awaitSynced(ctx context.Context, checker cache.DoneChecker) (absent bool, err error) {
	if cache.IsDone(checker) {
		return false, nil
	}
	select {
	case <-checker.Done():
		return false, nil
	case <-a.done():
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}
