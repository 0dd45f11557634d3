package shadow

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
)

// TestFollowsWatches checks that events are counted in both framings, however the body is split
// into reads. A watch is open until its body has ended or is closed.
func TestFollowsWatches(t *testing.T) {
	var frames bytes.Buffer
	for _, n := range []int{3, 0, 70000, 1} {
		frames.Write(binary.BigEndian.AppendUint32(nil, uint32(n)))
		frames.Write(bytes.Repeat([]byte{'\n'}, n))
	}
	for contentType, body := range map[string]string{
		"application/vnd.kubernetes.protobuf;stream=watch": frames.String(),
		"application/json;stream=watch":                    strings.Repeat("{}\n", 4),
	} {
		for name, pieces := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "halves": iotest.HalfReader, "bytes": iotest.OneByteReader,
		} {
			for _, toTheEnd := range []bool{true, false} {
				t.Run(fmt.Sprint(contentType, name, toTheEnd), func(t *testing.T) {
					s := newTestShadow()
					w := &wire{answer: func(*http.Request) *http.Response {
						h := http.Header{"Content-Type": {contentType}}
						return &http.Response{StatusCode: http.StatusOK, Header: h, Body: io.NopCloser(pieces(strings.NewReader(body)))}
					}}
					resp, err := s.Wrap(w).RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/pods?watch=true", http.NoBody))
					if err != nil {
						t.Fatal(err)
					}
					if sum := total(s.load.list()); sum.Open != 1 || sum.Requests != 1 {
						t.Errorf("%+v, want one that is open", sum)
					}
					if toTheEnd {
						if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != int64(len(body)) {
							t.Errorf("%d of %d bytes: %v", n, len(body), err)
						}
						want := Read{Verb: "watch", Resource: "pods", Requests: 1, Bytes: int64(len(body)), Events: 4}
						if all := s.load.list(); len(all) != 1 || all[0] != want {
							t.Errorf("%+v, want %+v", all, want)
						}
					}
					resp.Body.Close()
					resp.Body.Close()
					if sum := total(s.load.list()); sum.Open != 0 {
						t.Errorf("%d are open after the end", sum.Open)
					}
				})
			}
		}
	}
}

// TestRefusedReads checks that refused reads are counted, and named if caches depend on them.
func TestRefusedReads(t *testing.T) {
	s := newTestShadow()
	w := &wire{answer: func(req *http.Request) *http.Response { return refusal(req, "no") }}
	for _, path := range []string{"/api/v1/secrets", "/api/v1/secrets", "/api/v1/namespaces/a/secrets/x", "/api/v1/pods?watch=1"} {
		resp, err := s.Wrap(w).RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if got := strings.Join(s.RefusedReads(), ","); got != "list secrets,watch pods" {
		t.Errorf("refused: %s", got)
	}
	if sum := total(s.load.list()); sum.Refused != 4 || sum.Open != 0 {
		t.Errorf("%+v, want four refused and none open", sum)
	}
}

// TestLoadIsBounded checks that resources beyond the bound are counted together.
func TestLoadIsBounded(t *testing.T) {
	l := newLoad()
	for i := range maxRead + 100 {
		l.of(request{Kind: Kind{Verb: "list", Resource: fmt.Sprint(i)}}).requests.Add(1)
	}
	if all := l.list(); len(all) != maxRead+1 || total(all).Requests != maxRead+100 {
		t.Errorf("%d kinds, %d requests", len(all), total(all).Requests)
	}
}
