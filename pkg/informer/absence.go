package informer

import (
	"context"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// absence records whether the API server has a resource that is not built in, by its last answer to
// a list or watch. Informers of an absent resource keep trying; nobody who waits for all informers
// of a factory waits for them. Methods may be called concurrently, and on nil, which stands for a
// resource that is always there.
type absence struct {
	mu sync.Mutex
	// noted is closed while the resource is absent.
	noted chan struct{}
}

// absenceOf returns the absence of a resource; nil for one that is built in.
func (p *Pool) absenceOf(gvr schema.GroupVersionResource) *absence {
	if _, builtIn := p.kinds.ByResource[gvr]; builtIn {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	a, known := p.absences[gvr]
	if !known {
		a = &absence{noted: make(chan struct{})}
		p.absences[gvr] = a
	}
	return a
}

// note records the answer to a request. Errors count only if they say that there is no such
// resource.
func (a *absence) note(err error) {
	if a == nil || err != nil && !apierrors.IsNotFound(err) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	was := false
	select {
	case <-a.noted:
		was = true
	default:
	}
	switch absent := err != nil; {
	case absent && !was:
		close(a.noted)
	case !absent && was:
		a.noted = make(chan struct{})
	}
}

// done returns a channel that is closed while the resource is absent; call it again for each wait.
func (a *absence) done() <-chan struct{} {
	if a == nil {
		return nil
	}
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
