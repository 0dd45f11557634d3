package harness

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// Patience is the time limit for steps that take seconds, at most 30, on an idle machine.
	Patience = 4 * time.Minute

	interval = 100 * time.Millisecond
	// requestTimeout limits one evaluation of a condition.
	requestTimeout = 20 * time.Second
)

// ErrGiveUp makes Await return at once, because the condition can never hold.
var ErrGiveUp = errors.New("giving up")

// Condition returns nil once it holds, and otherwise an error that says what is missing.
type Condition = func(context.Context) error

// Await polls the condition every 100 ms until it returns nil, and returns how long that took. Each
// call gets 20 s of its own, so the error describes the condition and not the expired wait.
func Await(ctx context.Context, within time.Duration, what string, condition Condition) (time.Duration, error) {
	return AwaitEvery(ctx, interval, within, what, condition)
}

// AwaitEvery is Await with another interval: a shorter one for conditions that cost nothing to ask,
// or that must hold several times in a row.
func AwaitEvery(ctx context.Context, every, within time.Duration, what string, condition Condition) (time.Duration, error) {
	began, last := time.Now(), errors.New("not asked")
	err := wait.PollUntilContextTimeout(ctx, every, within, true, func(context.Context) (bool, error) {
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
