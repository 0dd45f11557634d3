package audit_test

import (
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

func TestOverlaps(t *testing.T) {
	type overlap struct {
		first, second string
		version       uint64
		long          time.Duration
	}
	tests := map[string]struct {
		log  []line
		want []overlap
	}{
		"handoff":     {log: handoff(lower)},
		"ran out":     {log: []line{lease(lower, a, 1, 10, 0), lease(lower, b, 2, 20, 6.01)}},
		"taken again": {log: []line{lease(lower, a, 1, 10, 0), lease(lower, a, 2, 20, 1)}},
		"taken early": {
			log:  []line{lease(lower, a, 1, 10, 0), lease(lower, b, 2, 20, 5)},
			want: []overlap{{a, b, 20, 998 * time.Millisecond}},
		},
		// The first holder comes back after the second has released, so by the clock nothing is
		// wrong.
		"went on": {
			log: []line{
				lease(lower, a, 1, 10, 0), lease(lower, "", 1, 20, 1), lease(lower, b, 2, 30, 2), lease(lower, "", 2, 40, 3),
				lease(lower, a, 1, 50, 4),
			},
			want: []overlap{{a, b, 50, 2 * time.Second}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := check(t, test.log...)
			if len(report.Overlaps) != len(test.want) {
				t.Fatalf("overlaps: %+v, want %+v", report.Overlaps, test.want)
			}
			for i, o := range report.Overlaps {
				if got := (overlap{o.First.Holder, o.Second.Holder, o.Version, o.For}); got != test.want[i] || o.Shard.String() != lower {
					t.Errorf("overlap %+v of %s, want %+v", got, o.Shard, test.want[i])
				}
			}
			if (report.Err() == nil) != (len(test.want) == 0) {
				t.Errorf("violations %v", report.Violations)
			}
		})
	}
	requireKinds(t, check(t, tests["went on"].log...), audit.TermReused, audit.Overlapping)
}
