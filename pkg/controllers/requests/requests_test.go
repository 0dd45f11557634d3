package requests

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
)

// answering gives every request the same answer.
type answering struct {
	code int
	err  error
}

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(*http.Request) (*http.Response, error) {
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: a.code, Body: http.NoBody, Header: http.Header{}}, nil
}

// TestWhatIsAnError: each answer counts under one result. Requests that were not sent or were given
// up do not count.
func TestWhatIsAnError(t *testing.T) {
	type expectation struct {
		answer answering
		want   Result
	}
	cases := []expectation{
		{answering{err: io.ErrUnexpectedEOF}, Failed},
		{answering{err: context.DeadlineExceeded}, Failed},
		{answering{err: fmt.Errorf("late: %w", fence.ErrRefused)}, ""},
		{answering{err: fmt.Errorf("stop: %w", context.Canceled)}, ""},
	}
	for result, codes := range map[Result][]int{
		OK: {200, 201, 101, 304}, Conflict: {404, 409, 410, 412}, Throttled: {429},
		Refused: {400, 401, 403, 415, 422}, Failed: {500, 503, 504},
	} {
		for _, code := range codes {
			cases = append(cases, expectation{answering{code: code}, result})
		}
	}
	for _, tc := range cases {
		rt := Wrap(tc.answer)
		before, metric := Answered(), read(t)
		const pods = "https://127.0.0.1/api/v1/pods"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, pods, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if !errors.Is(err, tc.answer.err) || err == nil && resp.StatusCode != tc.answer.code {
			t.Errorf("%+v: got %v, %v", tc.answer, resp, err)
		}
		if err == nil {
			_ = resp.Body.Close()
		}
		want := Done{}
		if tc.want != "" {
			want.All = 1
		}
		if tc.want == Refused || tc.want == Failed {
			want.Errors = 1
		}
		after := Answered()
		if more := (Done{after.All - before.All, after.Errors - before.Errors}); more != want {
			t.Errorf("%+v: %+v more, want %+v", tc.answer, more, want)
		}
		for i, value := range read(t) {
			if more := value - metric[i]; (more == 1) != (Results[i] == tc.want) || more > 1 {
				t.Errorf("%+v: %v more under %s, want %q", tc.answer, more, Results[i], tc.want)
			}
		}
	}
}

// TestGivenUp: a request that its caller gave up does not count, even though net/http returns the
// cause of the context's end. If the caller's deadline passed, the request counts as failed.
func TestGivenUp(t *testing.T) {
	draining := errors.New("draining")
	begun := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	client := http.Client{Transport: Wrap(server.Client().Transport)}
	for _, tc := range []struct {
		ends error
		end  func(context.Context, context.CancelCauseFunc) context.Context
		want Done
	}{
		{draining, func(ctx context.Context, cancel context.CancelCauseFunc) context.Context {
			go func() { <-begun; cancel(draining) }()
			return ctx
		}, Done{}},
		{context.DeadlineExceeded, func(ctx context.Context, cancel context.CancelCauseFunc) context.Context {
			ctx, end := context.WithDeadline(ctx, time.Unix(0, 0))
			t.Cleanup(end)
			return ctx
		}, Done{All: 1, Errors: 1}},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		req, err := http.NewRequestWithContext(tc.end(ctx, cancel), http.MethodPut, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		before := Answered()
		resp, err := client.Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if !errors.Is(err, tc.ends) || errors.Is(err, context.Canceled) {
			t.Fatalf("the request ended with %v, want %v", err, tc.ends)
		}
		after := Answered()
		if more := (Done{after.All - before.All, after.Errors - before.Errors}); more != tc.want {
			t.Errorf("%v: %+v more, want %+v", tc.ends, more, tc.want)
		}
	}
}

// read returns the metric's values, by index in Results.
func read(t *testing.T) []float64 {
	t.Helper()
	var all []float64
	for r := range slices.Values(Results) {
		value, err := testutil.GetCounterMetricValue(answers.WithLabelValues(string(r)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, value)
	}
	return all
}
