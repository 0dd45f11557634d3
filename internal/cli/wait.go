package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// waitInterval is how often the Leases are read while waiting for a plan.
const waitInterval = 500 * time.Millisecond

// errNever says that waiting cannot help.
var errNever = errors.New("not waiting any longer")

// pending returns what must still happen until the fleet runs the plan of this generation: every
// shard running, and none of an older generation held. It is nil when everything has happened, and
// wraps errNever if it will not happen.
func pending(r *status.Reading, plan shard.Plan) error {
	if r.Fault != nil {
		return r.Problem()
	}
	if r.Plan.Generation != plan.Generation || r.Plan.Digest() != plan.Digest() {
		return fmt.Errorf("%w for plan generation %d: generation %d has taken its place", errNever, plan.Generation, r.Plan.Generation)
	}
	for _, m := range r.Roster.Members() {
		if text := m.Annotations[leaseapi.RefusedAnnotation]; strings.HasPrefix(text, fmt.Sprintf("%d:", plan.Generation)) {
			return fmt.Errorf("%w for plan generation %d: member %s refuses it: %s", errNever, plan.Generation, m.Name, status.Plain(text))
		}
	}
	if silence, _ := r.Silence(); silence > 0 {
		return errors.New("no member renews its Lease: none seems to run") // without a time, which would be news at each look
	}
	older := r.Older()
	counts := map[status.State][]string{}
	for _, s := range r.Plan.Shards() {
		if v := status.ViewShard(r, s, older); v.State != status.StateRunning {
			counts[v.State] = append(counts[v.State], v.Shard)
		}
	}
	var missing []string
	for _, state := range []status.State{status.StateUnowned, status.StateStopped, status.StateLockedOut, status.StateOlder, status.StateWaiting, status.StateStarting} {
		if ids := counts[state]; len(ids) > 0 {
			missing = append(missing, fmt.Sprintf("%d %s (%s)", len(ids), state, some(ids)))
		}
	}
	if len(older) > 0 {
		var names []string
		for _, o := range older {
			names = append(names, o.Name)
		}
		missing = append(missing, fmt.Sprintf("%d of an older generation still held (%s)", len(older), some(names)))
	}
	if len(missing) > 0 {
		return fmt.Errorf("shards: %s", strings.Join(missing, "; "))
	}
	return nil
}

// pinned returns which shards are not where the plan pins them, of those that are to move there.
func pinned(r *status.Reading) error {
	assigned, err := r.Assignment()
	if err != nil {
		return err
	}
	holders := r.Holders()
	var elsewhere []string
	for _, s := range r.Plan.Shards() {
		if s.Pin != "" && assigned.Owner(s.ID) == s.Pin && holders[s.ID] != s.Pin {
			elsewhere = append(elsewhere, s.ID.String())
		}
	}
	if len(elsewhere) > 0 {
		return fmt.Errorf("shards: %d not at the member that they are pinned to (%s)", len(elsewhere), some(elsewhere))
	}
	return nil
}

// some returns the first of the names.
func some(names []string) string {
	const most = 4
	text := strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most {
		text += ", ..."
	}
	return status.Plain(text)
}

// waiting is something to wait for.
type waiting struct {
	// what follows "waited 2m0s for".
	what string
	// done says in words that it has happened; only if the caller prints it.
	done string
	// missing returns nil when it has happened, and otherwise what is still missing; an error that
	// wraps errNever ends the waiting.
	missing func(*status.Reading) error
}

// waitedError says that the time of --wait or --timeout is over, whatever the last request failed
// with.
type waitedError struct{ error }

// Unwrap returns what is missing.
func (e waitedError) Unwrap() error { return e.error }

// wait returns when nothing is missing any more. It prints progress whenever what is missing
// changes.
func (c *connection) wait(ctx context.Context, w waiting, within time.Duration, progress func(string)) error {
	ticker := c.clock.NewTicker(waitInterval)
	defer ticker.Stop()
	deadline := c.clock.NewTimer(within)
	defer deadline.Stop()
	last, began := "", c.clock.Now()
	var before *status.Reading
	var err error
	for {
		r, failure := c.readWithin(ctx, within-c.clock.Since(began))
		switch {
		case failure == nil:
			r = r.Following(before)
			before = r
			if err = w.missing(r); err == nil || errors.Is(err, errNever) {
				return err
			}
		case err == nil || c.clock.Since(began) < within:
			err = failure // Otherwise only the time for this read was up, and what was missing tells more.
		}
		if text := err.Error(); text != last {
			progress(text)
			last = text
		}
		select {
		case <-ticker.C():
		case <-deadline.C():
			return waitedError{fmt.Errorf("waited %v for %s: %w", within, w.what, err)}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// readWithin is read within what is left of a wait, and within the time for one request.
func (c *connection) readWithin(ctx context.Context, left time.Duration) (*status.Reading, error) {
	if c.target.Timeout > 0 {
		left = min(left, c.target.Timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	return c.read(ctx)
}

// inForce waits until the fleet runs the plan.
func inForce(plan shard.Plan) waiting {
	return waiting{
		what: fmt.Sprintf("plan generation %d, which stays in force", plan.Generation),
		missing: func(r *status.Reading) error {
			if err := pending(r, plan); err != nil {
				return err
			}
			v := r.Canary()
			if err := pinned(r); err != nil || v == nil {
				return err
			}
			return v.Unfinished()
		},
	}
}
