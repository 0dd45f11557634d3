package integration

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// expiry is how a watch learns that the events it requests are gone.
type expiry int

const (
	// goneStatus answers the request with 410.
	goneStatus expiry = iota
	// goneEvent answers with a stream of one ERROR event, as the API server does.
	goneEvent
	// goneTwice is goneStatus for the watch and for the list that follows it.
	goneTwice
	// tooOld forwards the request with resource version 1. A restarted API server answers that this
	// is too old; another one sends the whole history.
	tooOld

	expiries
)

// wire carries one process's requests to the API server and can be disturbed.
type wire struct {
	mu      sync.Mutex
	streams []*stream
	// held is not nil while watches wait, and is closed to let them continue. They then get expiry.
	held   chan struct{}
	expiry expiry
	// gone counts requests to be answered with 410, by path. inHold is how many watches wait,
	// refused how many were told that they are too late.
	gone    map[string]int
	inHold  int
	refused int
	// forget removes shardSelector from watches, as a server without the feature does.
	forget bool
}

func newWire() *wire { return &wire{gone: map[string]int{}} }

// over returns config with all requests going over the wire.
func (w *wire) over(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return end{w, next} })
	return config
}

// end is the client's end of the wire.
type end struct {
	*wire
	next http.RoundTripper
}

func (e end) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	if query.Get("watch") != "true" && query.Get("watch") != "1" {
		if e.takeGone(request.URL, query) {
			return gone(request, false), nil
		}
		return e.next.RoundTrip(request)
	}
	held, forget := e.state()
	// A streaming list is not held, because it cannot be too late.
	if held != nil && query.Get("sendInitialEvents") != "true" {
		e.waits(1)
		select {
		case <-held:
			e.waits(-1)
		case <-request.Context().Done():
			e.waits(-1)
			return nil, request.Context().Err()
		}
		switch e.released(request.URL.Path) {
		case goneStatus, goneTwice:
			return gone(request, false), nil
		case goneEvent:
			return gone(request, true), nil
		case tooOld:
			query.Set("resourceVersion", "1")
		}
	} else if e.takeGone(request.URL, query) {
		return gone(request, false), nil
	}
	if forget {
		query.Del("shardSelector")
	}
	request = request.Clone(request.Context())
	request.URL.RawQuery = query.Encode()
	response, err := e.next.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	response.Body = e.opened(request.URL.Path, response.Body)
	return response, nil
}

func (w *wire) state() (held chan struct{}, forget bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held, w.forget
}

func (w *wire) released(path string) expiry {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.expiry == goneTwice {
		w.gone[path]++
	}
	w.refused++
	return w.expiry
}

func (w *wire) waits(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inHold += n
}

// waiting returns how many watches wait for release.
func (w *wire) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inHold
}

// talking returns how many open watches have received something.
func (w *wire) talking() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, s := range w.streams {
		if !s.silent() {
			n++
		}
	}
	return n
}

// refusals returns how many watches were told that they are too late.
func (w *wire) refusals() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refused
}

// takeGone reports whether to answer a request that names a version with "expired". Requests for
// any version, such as probes, pass.
func (w *wire) takeGone(u *url.URL, query url.Values) bool {
	if version := query.Get("resourceVersion"); version == "" || version == "0" {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone[u.Path] == 0 {
		return false
	}
	w.gone[u.Path]--
	return true
}

// gone is the API server's answer to a request for an expired version.
func gone(request *http.Request, event bool) *http.Response {
	status := apierrors.NewResourceExpired("too old resource version").Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	var content any = status
	code := http.StatusGone
	if event {
		code = http.StatusOK
		content = map[string]any{"type": "ERROR", "object": status}
	}
	body, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"Content-Type": {"application/json"}},
		Body:    io.NopCloser(bytes.NewReader(body)),
		Request: request,
	}
}

func (w *wire) opened(path string, body io.ReadCloser) io.ReadCloser {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &stream{resource: path[strings.LastIndex(path, "/")+1:], body: body, wire: w}
	w.streams = append(w.streams, s)
	return s
}

// watches returns how many watches of the resource are open.
func (w *wire) watches(resource string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, s := range w.streams {
		if s.resource == resource {
			n++
		}
	}
	return n
}

// cut ends each open watch that has received something with the given probability. If it had
// received nothing, the informer would assume a fault of the server and back off longer and longer.
func (w *wire) cut(random *rand.Rand, probability float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams = slices.DeleteFunc(w.streams, func(s *stream) bool {
		if random.Float64() >= probability || s.silent() {
			return false
		}
		s.end(breaks[random.IntN(len(breaks))])
		return true
	})
}

// breaks are the errors of a connection that ends, cleanly or not.
var breaks = []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET}

// hold ends all watches; new ones wait until release.
func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = make(chan struct{})
	for _, s := range w.streams {
		s.end(io.EOF)
	}
	w.streams = nil
}

// release lets waiting watches continue, and tells them that they are too late.
func (w *wire) release(how expiry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expiry = how
	close(w.held)
	w.held = nil
}

// stream is the body of a watch.
type stream struct {
	resource string
	body     io.ReadCloser
	wire     *wire

	mu    sync.Mutex
	spoke bool
	err   error
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	s.spoke = s.spoke || n > 0
	return n, err
}

// Close implements io.Closer.
func (s *stream) Close() error {
	s.wire.mu.Lock()
	s.wire.streams = slices.DeleteFunc(s.wire.streams, func(other *stream) bool { return other == s })
	s.wire.mu.Unlock()
	return s.body.Close()
}

func (s *stream) silent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.spoke
}

// end makes the stream end with err. Data received but not read is lost.
func (s *stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	_ = s.body.Close()
}
