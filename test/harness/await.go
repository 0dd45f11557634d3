package harness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// Patience is for what takes seconds on an idle machine, and half a minute at most.
	Patience = 4 * time.Minute

	interval = 100 * time.Millisecond
	// requestTimeout is for one look at what is waited for.
	requestTimeout = 20 * time.Second
)

// ErrGiveUp ends Await at once: what is waited for can no longer happen.
var ErrGiveUp = errors.New("giving up")

// Condition returns nil once it holds, and otherwise what is missing.
type Condition = func(context.Context) error

// Await asks the condition every 100 ms until it returns nil, and returns how long that took. Each
// time the condition has 20 s to answer, so its error is about what it asked and not about the time
// that is over.
func Await(ctx context.Context, within time.Duration, what string, condition Condition) (time.Duration, error) {
	began, last := time.Now(), errors.New("not asked")
	err := wait.PollUntilContextTimeout(ctx, interval, within, true, func(context.Context) (bool, error) {
		asking, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		seen := condition(asking)
		if ctx.Err() == nil {
			last = seen
		}
		if errors.Is(seen, ErrGiveUp) {
			return false, seen
		}
		return seen == nil, nil
	})
	took := time.Since(began).Round(10 * time.Millisecond)
	switch {
	case err == nil:
		return took, nil
	case errors.Is(err, ErrGiveUp):
		return took, fmt.Errorf("%s: %w", what, err)
	case ctx.Err() != nil:
		return took, fmt.Errorf("%s: %w; last seen: %w", what, context.Cause(ctx), last)
	default:
		return took, fmt.Errorf("%s: not within %v; last seen: %w", what, within, last)
	}
}
