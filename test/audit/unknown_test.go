package audit_test

import (
	"fmt"
	"testing"

	"github.com/flotilla-kube/flotilla/test/audit"
)

// on returns a write of a Lease that says on which version it was made.
func (l line) on(version int) line {
	asked := thing(l["responseObject"].(map[string]any)).set("metadata", "resourceVersion", fmt.Sprint(version))
	return l.with("requestObject", map[string]any(asked))
}

// wish is a rival's write of a Lease, which leaves the spec as another write made it.
func wish(spec line, version int, second float64) line {
	answer := thing(spec["responseObject"].(map[string]any)).set("metadata", "resourceVersion", fmt.Sprint(version))
	return lease(lower, a, 1, version, second).with("responseObject", map[string]any(answer))
}

// TestUnknownLeaseWrites has a busy API server answer with a timeout, after which the write takes effect or does not.
func TestUnknownLeaseWrites(t *testing.T) {
	held := lease(lower, a, 1, 10, 0)
	renewal, release := lease(lower, a, 1, 0, 1).on(10), lease(lower, "", 1, 0, 1).on(10)
	tests := map[string]struct {
		lines []line
		want  []audit.Kind
	}{
		"renewed, and asked for": {
			lines: []line{renewal.code(504), wish(renewal, 30, 5).on(20), lease(lower, b, 2, 40, 7.5).on(30)},
		},
		"renewed, asked for, and taken early": {
			lines: []line{renewal.code(504), wish(renewal, 30, 5).on(20), lease(lower, b, 2, 40, 6.5).on(30)},
			want:  []audit.Kind{audit.TakenEarly},
		},
		"renewed, and taken early": {
			lines: []line{renewal.code(504), lease(lower, b, 2, 40, 6.5).on(20)},
			want:  []audit.Kind{audit.TakenEarly},
		},
		"renewed by one of two": {
			lines: []line{
				renewal.code(504), lease(lower, a, 1, 0, 2).on(10).code(504), wish(renewal, 30, 5).on(20), lease(lower, b, 2, 40, 7.5).on(30),
			},
		},
		"renewed twice": {
			lines: []line{
				renewal.code(504), lease(lower, a, 1, 0, 2).on(20).code(504), wish(lease(lower, a, 1, 0, 2), 40, 5).on(30),
				lease(lower, b, 2, 50, 8.5).on(40),
			},
		},
		"renewed twice, and taken early": {
			lines: []line{
				renewal.code(504), lease(lower, a, 1, 0, 2).on(20).code(504), wish(lease(lower, a, 1, 0, 2), 40, 5).on(30),
				lease(lower, b, 2, 50, 7.5).on(40),
			},
			want: []audit.Kind{audit.TakenEarly},
		},
		"released": {lines: []line{release.code(504), lease(lower, b, 2, 30, 2).on(20)}},
		"released, and a write of the term after it": {
			lines: []line{release.code(504), write(a, lower, 1, low, 25, 1.5), lease(lower, b, 2, 30, 2).on(20)},
			want:  []audit.Kind{audit.NotHolder},
		},
		"not released": {
			lines: []line{release.code(504), lease(lower, b, 2, 30, 2).on(10)},
			want:  []audit.Kind{audit.TakenEarly},
		},
		"taken": {
			lines: []line{
				lease(lower, "", 1, 20, 1).on(10), lease(lower, b, 2, 0, 2).on(20).code(504), write(b, lower, 2, low, 35, 2.5),
				lease(lower, b, 2, 40, 3).on(30),
			},
		},
		"not taken": {
			lines: []line{
				lease(lower, "", 1, 20, 1).on(10), lease(lower, b, 2, 0, 2).on(20).code(504), write(b, lower, 2, low, 35, 2.5),
				lease(lower, b, 2, 40, 3).on(20),
			},
			want: []audit.Kind{audit.NotHolder},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			requireKinds(t, check(t, append(test.lines, held)...), test.want...)
		})
	}
}
