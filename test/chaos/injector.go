package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
)

// injector answers some requests instead of the API server and ends watches, for the proxies that
// end TLS.
type injector struct {
	mu       sync.Mutex
	random   *rand.Rand
	errors   float64
	gone     float64
	watches  map[int]context.CancelFunc
	nextID   int
	injected atomic.Int64
}

func newInjector(seed uint64) *injector {
	return &injector{random: rand.New(rand.NewPCG(seed, seed)), watches: map[int]context.CancelFunc{}}
}

// Set sets the share of all requests that get an error, and the share of new watches that get 410.
func (i *injector) Set(errors, gone float64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.errors, i.gone = errors, gone
}

// Injected returns how many requests it answered plus how many watches it ended.
func (i *injector) Injected() int64 { return i.injected.Load() }

// EndWatches ends all open watches.
func (i *injector) EndWatches() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for id, cancel := range i.watches {
		cancel()
		delete(i.watches, id)
		i.injected.Add(1)
	}
}

// between returns a handler that forwards the requests that the injector does not answer.
func (i *injector) between(forward http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		watch := isWatch(r)
		if code := i.draw(watch); code != 0 {
			i.injected.Add(1)
			refuse(out, code)
			return
		}
		if watch {
			ctx, done := i.watching(r.Context())
			defer done()
			r = r.WithContext(ctx)
		}
		forward.ServeHTTP(out, r)
	})
}

func isWatch(r *http.Request) bool {
	value := r.URL.Query().Get("watch")
	return r.Method == http.MethodGet && (value == "true" || value == "1")
}

// stormCodes are a storm's answers; the API server gives each of them as well.
var stormCodes = []int{
	http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable,
	http.StatusGatewayTimeout,
}

// draw returns the status to answer with, or 0 to forward the request.
func (i *injector) draw(watch bool) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	if watch && i.random.Float64() < i.gone {
		return http.StatusGone
	}
	if i.random.Float64() < i.errors {
		return stormCodes[i.random.IntN(len(stormCodes))]
	}
	return 0
}

// watching returns a context that EndWatches ends.
func (i *injector) watching(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	i.mu.Lock()
	defer i.mu.Unlock()
	id := i.nextID
	i.nextID++
	i.watches[id] = cancel
	return ctx, func() {
		cancel()
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.watches, id)
	}
}

// reasons are the API's reasons for the codes.
var reasons = map[int]string{
	http.StatusConflict: "Conflict", http.StatusTooManyRequests: "TooManyRequests", http.StatusGone: "Expired",
	http.StatusInternalServerError: "InternalError", http.StatusServiceUnavailable: "ServiceUnavailable",
	http.StatusGatewayTimeout: "Timeout",
}

// refuse answers as the API server would.
func refuse(out http.ResponseWriter, code int) {
	out.Header().Set("Content-Type", "application/json")
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		out.Header().Set("Retry-After", "1")
	}
	out.WriteHeader(code)
	fmt.Fprintf(out, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%s,"reason":%q,"code":%d}`,
		strconv.Quote("made up by the chaos proxy"), reasons[code], code)
}
