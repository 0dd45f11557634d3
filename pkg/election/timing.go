package election

import (
	"errors"
	"fmt"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/request"
)

// Timing holds the three durations of a claim. All members of a fleet should use the same.
type Timing struct {
	// LeaseDuration is how long a Lease must stand still before others take it over. It bounds a
	// takeover from below, and is how long after the last renewal (of its member's Lease, where it
	// lives by that) a holder's work must have returned. Default 15s. Within [MinDuration,
	// MaxDuration]; written to the Lease in whole seconds, rounded up.
	LeaseDuration time.Duration
	// RenewDeadline is how long after the start of its last successful renewal a claim ends.
	// Default 10s. Must be less than LeaseDuration: the difference is the time the work has to
	// return, the ratio the tolerated difference in clock speed.
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals, and after a failed request until the next. Default
	// 2s. Must be positive, and RenewDeadline more than 1.2 times as long.
	RetryPeriod time.Duration
}

// DefaultTiming returns the durations that the stock components use: 15s, 10s, 2s.
func DefaultTiming() Timing {
	return Timing{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
}

// Validate returns an error that names every field outside its bounds.
func (t Timing) Validate() error {
	var errs []error
	if t.LeaseDuration < MinDuration || t.LeaseDuration > MaxDuration {
		errs = append(errs, fmt.Errorf("Timing.LeaseDuration is %v, must be within [%v, %v]", t.LeaseDuration, MinDuration, MaxDuration))
	}
	if t.RenewDeadline >= t.LeaseDuration {
		errs = append(errs, fmt.Errorf("Timing.RenewDeadline is %v, must be less than LeaseDuration, %v", t.RenewDeadline, t.LeaseDuration))
	}
	if t.RetryPeriod <= 0 {
		errs = append(errs, fmt.Errorf("Timing.RetryPeriod is %v, must be positive", t.RetryPeriod))
	}
	// So that one failed renewal can be repeated.
	if least := time.Duration(request.JitterFactor * float64(t.RetryPeriod)); t.RenewDeadline <= least {
		errs = append(errs, fmt.Errorf("Timing.RenewDeadline is %v, must be more than %v, 1.2 times RetryPeriod", t.RenewDeadline, least))
	}
	return errors.Join(errs...)
}

// RequestTimeout bounds one request to the API server: half the renew deadline, so that a request
// that hangs leaves time for another one.
func (t Timing) RequestTimeout() time.Duration {
	return t.RenewDeadline / 2
}
