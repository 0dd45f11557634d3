package browser

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// TestBrowserNotices opens a page that requests more than itself and complains on the console. A
// browser that reported nothing would let every page pass.
func TestBrowserNotices(t *testing.T) {
	path := findBrowser()
	if path == "" {
		t.Skip(noBrowser)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			_, _ = w.Write([]byte(`<!doctype html><link rel="icon" href="data:,"><script>console.log("hello"); boom()</script><img src="/more.png">`))
			return
		}
		http.NotFound(w, r)
	}))
	defer server.Close()
	b := startBrowser(t, path)
	b.open(t, server.URL+"/")
	requests, complaints := b.noted()
	if !slices.Contains(requests, server.URL+"/more.png") || requests[0] != server.URL+"/" {
		t.Errorf("requests: %q", requests)
	}
	for _, want := range []string{"EventConsoleAPICalled", "EventExceptionThrown", "EventEntryAdded"} {
		if !slices.ContainsFunc(complaints, func(c string) bool { return strings.Contains(c, want) }) {
			t.Errorf("no %s in %q", want, complaints)
		}
	}
	b.resize(t, narrow, 800, true)
	if width := evaluate[int](t, b, "window.innerWidth"); width < narrow {
		t.Errorf("the page has %d px", width)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(t, scheme)
		if !evaluate[bool](t, b, "matchMedia('(prefers-color-scheme: "+scheme+")').matches") {
			t.Errorf("the page is not shown %s", scheme)
		}
	}
	b.open(t, "about:blank")
	if requests, complaints := b.noted(); slices.Contains(requests, server.URL+"/") || len(complaints) > 0 {
		t.Errorf("noted from the previous page: %q, %q", requests, complaints)
	}
}
