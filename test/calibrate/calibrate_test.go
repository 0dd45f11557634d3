package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"
)

// TestMeasure has writes of known durations, in virtual time, in which no timer is late.
func TestMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		write := func(context.Context) error {
			n++
			time.Sleep(time.Duration(min(n, 80)) * time.Millisecond)
			return nil
		}
		began := time.Now()
		m, err := Measure(t.Context(), 3*time.Second, write)
		if err != nil || m.Write != 80*time.Millisecond || m.Timer != 0 {
			t.Errorf("%v, %v after %d writes", m, err, n)
		}
		if n < fewest || time.Since(began) < 3*time.Second {
			t.Errorf("%d writes in %v", n, time.Since(began))
		}
	})
}

// TestMeasureEnds checks that an error or the end of the context gives no measurement.
func TestMeasureEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no")
		if _, err := Measure(t.Context(), time.Second, func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := Measure(ctx, time.Second, func(context.Context) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// TestWrites checks that every write stores something, the first by creating the Lease.
func TestWrites(t *testing.T) {
	client := fake.NewClientset()
	write := Writes(client)
	for range 3 {
		if err := write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var verbs []string
	for _, action := range client.Actions() {
		verbs = append(verbs, action.GetVerb())
	}
	if got := strings.Join(verbs, " "); got != "patch create patch patch" {
		t.Errorf("requests %s", got)
	}
}

// TestFigures checks percentiles, and the slower of two machines.
func TestFigures(t *testing.T) {
	if got := p99([]time.Duration{3, 1, 2}); got != 3 {
		t.Errorf("p99 of three is %d", got)
	}
	var many []time.Duration
	for i := range 200 {
		many = append(many, time.Duration(200-i))
	}
	if got := p99(many); got != 198 || p99(nil) != 0 {
		t.Errorf("p99 of 200 is %d, of none %d", got, p99(nil))
	}
	fast, busy := Machine{Write: 2, Timer: 9}, Machine{Write: 5, Timer: 1}
	if got := fast.Slower(busy); got != (Machine{Write: 5, Timer: 9}) {
		t.Errorf("slower: %v", got)
	}
}

// TestBound checks that a time too long for a fast machine may pass on a slow one, and that a
// message has both figures.
func TestBound(t *testing.T) {
	bound := Bound{What: "handoff", Promised: 250 * time.Millisecond, Steps: 4, On: Machine{Write: 10 * time.Millisecond, Timer: 2 * time.Millisecond}}
	if got := bound.Limit(); got != 298*time.Millisecond {
		t.Errorf("limit %v", got)
	}
	if err := bound.Check(298 * time.Millisecond); err != nil {
		t.Error(err)
	}
	err := bound.Check(299 * time.Millisecond)
	for _, text := range []string{"handoff: 299ms", "at most 298ms", "250ms", "4 steps", "a write takes 10ms", "timer is 2ms late"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: does not say %q", err, text)
		}
	}
	bound.On.Write = time.Second
	if err := bound.Check(4 * time.Second); err != nil {
		t.Error(err)
	}
}

// TestPromisesAreWritten compares the constants with the pages on which operators find them.
func TestPromisesAreWritten(t *testing.T) {
	for page, rows := range map[string][]string{
		"../../docs/design/ownership.md": {
			fmt.Sprintf("| planned move: a shard without a holder, p99 | %d ms |", Handoff.Milliseconds()),
			fmt.Sprintf("| takeover: its shards held by others, after its last renewal | lease duration and %.0f s |", Takeover.Seconds()),
			fmt.Sprintf("| leader lock cleared or deleted: without a holder | %d ms |", LeaderLockWritten.Milliseconds()),
		},
		"../../docs/migration.md": {
			fmt.Sprintf("| Lease free, stock to fleet | %d ms |", LeaderLockToFleet.Milliseconds()),
			fmt.Sprintf("| Lease free, fleet to stock with `--leader-elect-retry-period=250ms` | %.0f s |", LeaderLockToStock.Seconds()),
			fmt.Sprintf("| no controller writes, either way | %.0f s |", NobodyWrites.Seconds()),
		},
	} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if !strings.Contains(string(text), row) {
				t.Errorf("%s has no row that begins with %q", page, row)
			}
		}
	}
}
