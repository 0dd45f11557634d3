package shadow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// Shadow stands between a process's clients and the API server. All methods are safe for concurrent
// use.
type Shadow struct {
	prefix string
	now    func() time.Time
	writes *writes
	load   *load
	rights *rights
}

// New returns a Shadow for a server with this path in its address, empty for most. now returns the
// time.
func New(prefix string, now func() time.Time) *Shadow {
	return &Shadow{
		prefix: strings.TrimSuffix(prefix, "/"), now: now,
		writes: newWrites(), load: newLoad(), rights: newRights(),
	}
}

// Wrap lets reads through and answers everything else. It belongs innermost in every client of the
// process, except the one for questions.
func (s *Shadow) Wrap(next http.RoundTripper) http.RoundTripper { return &reader{s, next} }

type reader struct {
	shadow *Shadow
	next   http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = &reader{}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t *reader) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *reader) RoundTrip(req *http.Request) (*http.Response, error) {
	r := requestOf(req, t.shadow.prefix)
	if !reads(req, r) {
		return t.shadow.refuse(req, r)
	}
	t.shadow.rights.see(r)
	resp, err := t.next.RoundTrip(req)
	if err == nil {
		t.shadow.load.follow(r, resp)
	}
	return resp, err
}

// ErrRefused is the error of a request for another protocol.
var ErrRefused = errors.New("refused in this process by --shadow")

// refuse counts a request and answers it as RBAC would: a client that gets an answer does not retry
// by itself, as it may when a connection fails. Clients that want another protocol look for an
// error, not at the answer.
func (s *Shadow) refuse(req *http.Request, r request) (*http.Response, error) {
	if r.name == "" && r.Verb == "create" {
		r.name = nameOf(req)
	}
	if req.Body != nil {
		_ = req.Body.Close()
	}
	s.writes.add(r, s.now())
	s.rights.see(r)
	if upgrades(req) || r.acts() {
		return nil, fmt.Errorf("%w: %s %s %s", ErrRefused, r.Verb, r.Kind.Name(), r.object())
	}
	return refusal(req, "refused in this process by --shadow, which sends no writes: "+r.Verb+" "+r.Kind.Name()+" "+r.object()), nil
}

func refusal(req *http.Request, message string) *http.Response {
	text, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden, Message: message,
	})
	if err != nil {
		panic(err) // Everything in it can be encoded.
	}
	return &http.Response{
		Status: "403 Forbidden", StatusCode: http.StatusForbidden, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(text)),
		Body: io.NopCloser(bytes.NewReader(text)), Request: req,
	}
}

// The paths of reviews, which change nothing.
const (
	selfReviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	reviews     = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

// WrapQuestions lets only questions about rights through, not even reads. It is only for the client
// of Ask.
func (s *Shadow) WrapQuestions(next http.RoundTripper) http.RoundTripper {
	return &asker{s, next}
}

type asker struct {
	shadow *Shadow
	next   http.RoundTripper
}

var _ utilnet.RoundTripperWrapper = &asker{}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t *asker) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *asker) RoundTrip(req *http.Request) (*http.Response, error) {
	path := req.URL.Path
	asks := path == t.shadow.prefix+selfReviews || path == t.shadow.prefix+reviews
	if req.Method != http.MethodPost || !asks || upgrades(req) {
		return t.shadow.refuse(req, requestOf(req, t.shadow.prefix))
	}
	return t.next.RoundTrip(req)
}
