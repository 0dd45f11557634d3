package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/calibrate"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// TestTakeoversAreBounded checks that a dead member's shards must be held again in time, on this
// machine. It does not judge moves during a fault for everybody, nor shards that were temporarily
// in no plan.
func TestTakeoversAreBounded(t *testing.T) {
	timing := testOptions(t).timing
	after := func(d time.Duration) []*harness.Event { return []*harness.Event{leaseLine(t, d, 11, "b_1", 2)} }
	late := calibrate.AfterRenewal(timing.LeaseDuration) + time.Millisecond
	released := []*harness.Event{leaseLine(t, time.Second, 11, "", 1), leaseLine(t, time.Second+late, 12, "b_1", 2)}
	killed := expectation{victims: []string{"a"}, replaced: true}
	for name, test := range map[string]struct {
		log     []*harness.Event
		e       expectation
		machine calibrate.Machine
		retired bool
		flags   string
		want    string
	}{
		"in time":                  {log: after(late - time.Millisecond), e: killed},
		"late":                     {log: after(late), e: killed, want: "takeover, from the last renewal: 7.001s, must be at most 7s"},
		"late, busy machine":       {log: after(late), e: killed, machine: calibrate.Machine{Write: time.Millisecond}},
		"late, only printed":       {log: after(late), e: killed, flags: "-bounds=false"},
		"late, for everybody":      {log: after(late), e: expectation{everyone: true, replaced: true}},
		"given to the dead member": {log: released, e: killed, want: "takeover, from the last renewal: 7.001s"},
		"temporarily in no plan":   {log: released, e: killed, retired: true},
		"nobody is replaced":       {log: after(late), e: expectation{}},
	} {
		t.Run(name, func(t *testing.T) {
			env := &environment{opts: testOptions(t, strings.Fields(test.flags)...), out: newPrinter(io.Discard), machine: test.machine}
			env.journal = newJournal(map[string]shard.ID{testLease: testShard}, "")
			env.journal.add(leaseLine(t, 0, 10, "a_1", 1))
			if test.retired {
				env.journal.follow(nil)
				env.journal.follow(map[string]shard.ID{testLease: testShard})
			}
			for _, e := range test.log {
				env.journal.add(e)
			}
			err := (&round{env: env}).bounds(test.e, epoch.Add(time.Millisecond))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestHandoffsAreBounded checks that the p99 of all planned handoffs counts, relative to the
// slowest measurement of the machine, and that faults that are not orderly add nothing.
func TestHandoffsAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		gap     time.Duration
		kind    string
		machine calibrate.Machine
		want    string
	}{
		"in time":          {gap: calibrate.Handoff, kind: "rolling"},
		"late":             {gap: calibrate.Handoff + time.Millisecond, kind: "rolling", want: "p99 of 1 planned handoffs: 251ms, must be at most 250ms"},
		"busy machine":     {gap: calibrate.Handoff + time.Millisecond, kind: "rolling", machine: calibrate.Machine{Timer: time.Millisecond}},
		"nothing moved":    {kind: "rolling", want: errNoHandoffs.Error()},
		"not orderly":      {gap: time.Minute, kind: "cut"},
		"nothing, and cut": {kind: "cut"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &chaos{environment: &environment{opts: testOptions(t), out: newPrinter(io.Discard)}}
			c.journal = newJournal(map[string]shard.ID{testLease: testShard}, "")
			c.outcomes = []outcome{{name: test.kind}}
			c.journal.add(leaseLine(t, 0, 10, "a_1", 1))
			if test.gap > 0 {
				c.journal.add(leaseLine(t, time.Second, 11, "", 1))
				c.journal.add(leaseLine(t, time.Second+test.gap, 12, "b_1", 2))
			}
			// The machine's speed before a fault that is not orderly does not count.
			c.machine = calibrate.Machine{Write: time.Hour}
			if err := (&round{env: c.environment, kind: faultByName("cut")}).bounds(expectation{}, epoch.Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
			c.machine = test.machine
			if err := (&round{env: c.environment, kind: faultByName(test.kind)}).bounds(expectation{}, epoch.Add(time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			err := c.handoffs()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
