package main

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

func TestInjectorAnswersAndEndsWatches(t *testing.T) {
	i := newInjector(1)
	began := make(chan struct{}, 1)
	forwarded := i.between(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if isWatch(r) {
			began <- struct{}{}
			<-r.Context().Done()
		}
		out.WriteHeader(http.StatusAccepted)
	}))
	get := func(path string) int {
		recorder := httptest.NewRecorder()
		forwarded.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		return recorder.Code
	}
	if code := get("/api"); code != http.StatusAccepted {
		t.Errorf("answered with %d", code)
	}
	i.Set(0, 1)
	if watch, list := get("/api?watch=true"), get("/api"); watch != http.StatusGone || list != http.StatusAccepted {
		t.Errorf("a watch is answered with %d, a list with %d", watch, list)
	}
	i.Set(1, 0)
	if code := get("/api"); code < 409 || i.Injected() != 2 {
		t.Errorf("answered with %d, %d injected", code, i.Injected())
	}
	i.Set(0, 0)
	var group sync.WaitGroup
	group.Go(func() { get("/api?watch=1") })
	<-began
	i.EndWatches()
	group.Wait()
}
