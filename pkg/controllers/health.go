package controllers

import (
	"net/http"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/mux"
)

// Endpoints are the health checks and debug handlers of all controllers of a process. They come and
// go with the shards. Methods may be called concurrently.
type Endpoints struct {
	always []healthz.HealthChecker

	mu      sync.Mutex
	checks  map[string]*[]healthz.HealthChecker
	debug   map[string]http.Handler
	handler atomic.Pointer[mux.PathRecorderMux]
}

// NewEndpoints returns endpoints that always have the given checks.
func NewEndpoints(always ...healthz.HealthChecker) *Endpoints {
	e := &Endpoints{always: always, checks: map[string]*[]healthz.HealthChecker{}, debug: map[string]http.Handler{}}
	e.rebuildLocked()
	return e
}

// AddChecks adds checks under a key, such as a shard's name, in place of earlier ones under that
// key. It returns what removes them, unless others have taken their place by then.
func (e *Endpoints) AddChecks(key string, checks []healthz.HealthChecker) (remove func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	added := &checks
	e.checks[key] = added
	e.rebuildLocked()
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.checks[key] == added {
			delete(e.checks, key)
			e.rebuildLocked()
		}
	}
}

// CheckNames returns the names of all checks, sorted.
func (e *Endpoints) CheckNames() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var names []string
	for _, check := range e.allLocked() {
		names = append(names, check.Name())
	}
	return names
}

// Healthz returns the handler of /healthz and below it.
func (e *Endpoints) Healthz() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.handler.Load().ServeHTTP(w, r)
	})
}

// rebuildLocked makes a new handler: upstream's cannot remove a check.
func (e *Endpoints) rebuildLocked() {
	m := mux.NewPathRecorderMux("healthz")
	healthz.InstallHandler(m, e.allLocked()...)
	e.handler.Store(m)
}

func (e *Endpoints) allLocked() []healthz.HealthChecker {
	all := append([]healthz.HealthChecker(nil), e.always...)
	for _, checks := range e.checks {
		all = append(all, *checks...)
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Name() < all[j].Name() })
	return all
}

// debugPrefix is where upstream mounts the debug handlers of its controllers.
const debugPrefix = "/debug/controllers/"

// AddDebug mounts a debug handler below /debug/controllers/.
func (e *Endpoints) AddDebug(name string, h http.Handler) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.debug[name] = http.StripPrefix(debugPrefix+name, h)
}

// RemoveDebug removes a debug handler.
func (e *Endpoints) RemoveDebug(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.debug, name)
}

// DebugNames returns the names of all debug handlers, sorted.
func (e *Endpoints) DebugNames() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := make([]string, 0, len(e.debug))
	for name := range e.debug {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Debug returns the handler of everything below /debug/controllers/.
func (e *Endpoints) Debug() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := e.debugFor(strings.TrimPrefix(r.URL.Path, debugPrefix)); h != nil {
			h.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	})
}

func (e *Endpoints) debugFor(path string) http.Handler {
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, h := range e.debug {
		if path == name || strings.HasPrefix(path, name+"/") {
			return h
		}
	}
	return nil
}
