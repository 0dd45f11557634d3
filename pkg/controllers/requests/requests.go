package requests

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	k8smetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
)

// Result is the outcome of a request.
type Result string

const (
	// OK: the API server did what it was asked to do.
	OK Result = "ok"
	// Conflict: somebody else was faster, or the object does not exist: status 404, 409, 410 or
	// 412.
	Conflict Result = "conflict"
	// Throttled: the API server asked to come again later: status 429.
	Throttled Result = "throttled"
	// Refused: the request is not allowed or not valid: any other status of 400 to 499.
	Refused Result = "refused"
	// Failed: the API server could not, or did not answer: status 500 and above, or no answer.
	Failed Result = "failed"
)

// Results are all results. They do not change after initialisation.
var Results = []Result{OK, Conflict, Throttled, Refused, Failed}

// Done is how many requests have been answered since the process began. It only grows.
type Done struct {
	// All counts the requests that were answered or will never be, Errors those of them that were
	// Refused or Failed.
	All, Errors int64
}

var (
	tally   [5]atomic.Int64 // by the index in Results
	answers = k8smetrics.NewCounterVec(&k8smetrics.CounterOpts{
		Name: "flotilla_controller_requests_total", StabilityLevel: k8smetrics.ALPHA,
		Help: "Requests of this member's controllers to the API server, by what became of them: " +
			"ok, conflict, throttled, refused, failed.",
	}, []string{"result"})
)

// register puts the series on /metrics. It waits for the first client: component-base must have its
// feature gates by then.
var register = sync.OnceFunc(func() {
	legacyregistry.MustRegister(answers)
	for _, r := range Results {
		answers.WithLabelValues(string(r))
	}
})

// Answered returns how many requests have been answered up to now.
func Answered() Done {
	var d Done
	for i, r := range Results {
		n := tally[i].Load()
		if d.All += n; r == Refused || r == Failed {
			d.Errors += n
		}
	}
	return d
}

// Wrap counts the requests that pass. It fits rest.Config.Wrap, and belongs next to the fence, on
// its outer side.
func Wrap(next http.RoundTripper) http.RoundTripper {
	register()
	return counting{next}
}

type counting struct{ next http.RoundTripper }

var _ utilnet.RoundTripperWrapper = counting{}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t counting) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t counting) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if result, counts := resultOf(req.Context(), resp, err); counts {
		tally[slices.Index(Results, result)].Add(1)
		answers.WithLabelValues(string(result)).Inc()
	}
	return resp, err
}

// resultOf returns the outcome of a request, and whether it counts.
func resultOf(ctx context.Context, resp *http.Response, err error) (result Result, counts bool) {
	if err != nil {
		// If its context has a cause, net/http returns that instead of context.Canceled.
		givenUp := errors.Is(err, context.Canceled) || errors.Is(ctx.Err(), context.Canceled)
		return Failed, !givenUp && !errors.Is(err, fence.ErrRefused)
	}
	switch code := resp.StatusCode; {
	case code < http.StatusBadRequest:
		return OK, true
	case code == http.StatusNotFound, code == http.StatusConflict,
		code == http.StatusGone, code == http.StatusPreconditionFailed:
		return Conflict, true
	case code == http.StatusTooManyRequests:
		return Throttled, true
	case code < http.StatusInternalServerError:
		return Refused, true
	default:
		return Failed, true
	}
}
