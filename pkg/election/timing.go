package election

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/request"
)

// Timing holds the three durations of a claim. All members of a fleet should use the same.
type Timing struct {
	// LeaseDuration is how long a Lease must be unchanged before others take it over, so a takeover
	// takes at least as long. A holder's work must have returned within it after the last renewal
	// (of its member's Lease, for a claim that lives by that). Default 15s. Within [MinDuration,
	// MaxDuration]; written to the Lease in whole seconds, rounded up.
	LeaseDuration time.Duration
	// RenewDeadline is how long after the start of its last successful renewal a claim ends.
	// Default 10s. Must be less than LeaseDuration: the difference is the time that the work has to
	// return, and the ratio is the tolerated difference in clock speed.
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals, and from a failed request to the next. Default 2s.
	// Must be positive, and RenewDeadline must be more than 1.2 times as long.
	RetryPeriod time.Duration
}

// DefaultTiming returns the durations that the stock components use: 15s, 10s, 2s.
func DefaultTiming() Timing {
	return Timing{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
}

// Validate returns an error that names every field outside its bounds.
func (t Timing) Validate() error {
	var errs []error
	if t.LeaseDuration < leaserecord.MinDuration || t.LeaseDuration > leaserecord.MaxDuration {
		errs = append(errs, fmt.Errorf("Timing.LeaseDuration is %v, must be within [%v, %v]", t.LeaseDuration, leaserecord.MinDuration, leaserecord.MaxDuration))
	}
	if t.RenewDeadline >= t.LeaseDuration {
		errs = append(errs, fmt.Errorf("Timing.RenewDeadline is %v, must be less than LeaseDuration, %v", t.RenewDeadline, t.LeaseDuration))
	}
	if t.RetryPeriod <= 0 {
		errs = append(errs, fmt.Errorf("Timing.RetryPeriod is %v, must be positive", t.RetryPeriod))
	}
	// One failed renewal must leave time for another.
	if least := time.Duration(request.JitterFactor * float64(t.RetryPeriod)); t.RenewDeadline <= least {
		errs = append(errs, fmt.Errorf("Timing.RenewDeadline is %v, must be more than %v, 1.2 times RetryPeriod", t.RenewDeadline, least))
	}
	return errors.Join(errs...)
}

// RetrySoon returns the backoff for a request that a claimed name waits for.
func (t Timing) RetrySoon() wait.Backoff {
	return wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 6, Cap: t.RetryPeriod}
}

// RequestTimeout bounds one request to the API server: half the renew deadline, so that a request
// that hangs leaves time for another one.
func (t Timing) RequestTimeout() time.Duration {
	return t.RenewDeadline / 2
}
