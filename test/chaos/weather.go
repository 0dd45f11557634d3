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

// weather answers some requests instead of the API server and ends watches, for the proxies that
// end TLS.
type weather struct {
	mu       sync.Mutex
	random   *rand.Rand
	errors   float64
	gone     float64
	watches  map[int]context.CancelFunc
	nextID   int
	injected atomic.Int64
}

func newWeather(seed uint64) *weather {
	return &weather{random: rand.New(rand.NewPCG(seed, seed)), watches: map[int]context.CancelFunc{}}
}

// Set sets the share of all requests that get an error, and the share of new watches that get 410.
func (w *weather) Set(errors, gone float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errors, w.gone = errors, gone
}

// Injected returns how many requests weather answered plus how many watches it ended.
func (w *weather) Injected() int64 { return w.injected.Load() }

// EndWatches ends all open watches.
func (w *weather) EndWatches() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, cancel := range w.watches {
		cancel()
		delete(w.watches, id)
		w.injected.Add(1)
	}
}

// between returns a handler that forwards the requests that weather does not answer.
func (w *weather) between(forward http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		watch := isWatch(r)
		if code := w.draw(watch); code != 0 {
			w.injected.Add(1)
			refuse(out, code)
			return
		}
		if watch {
			ctx, done := w.watching(r.Context())
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
func (w *weather) draw(watch bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if watch && w.random.Float64() < w.gone {
		return http.StatusGone
	}
	if w.random.Float64() < w.errors {
		return stormCodes[w.random.IntN(len(stormCodes))]
	}
	return 0
}

// watching returns a context that EndWatches ends.
func (w *weather) watching(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(parent)
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.nextID
	w.nextID++
	w.watches[id] = cancel
	return ctx, func() {
		cancel()
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watches, id)
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
