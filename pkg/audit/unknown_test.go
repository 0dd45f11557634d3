package audit_test

import (
	"fmt"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

// on returns a write of a Lease that says on which version it was made.
func (l line) on(version int) line {
	sent := jsonObject(l["responseObject"].(map[string]any)).set("metadata", "resourceVersion", fmt.Sprint(version))
	return l.with("requestObject", map[string]any(sent))
}

// requested returns a rival's write of a Lease, which keeps the spec of another write.
func requested(spec line, version int, second float64) line {
	answer := jsonObject(spec["responseObject"].(map[string]any)).set("metadata", "resourceVersion", fmt.Sprint(version))
	return lease(lower, a, 1, version, second).with("responseObject", map[string]any(answer))
}

// TestUnknownWritesOfNewShards has writes with unknown outcome, of the plan and of shards that a
// change of the plan has made.
func TestUnknownWritesOfNewShards(t *testing.T) {
	halves, split, _ := plans(t)
	mine, _ := successor(t)
	asking := func(l line, based int) line {
		return l.on(based).code(504)
	}
	tests := map[string]struct {
		plant func(scene map[string]line)
		want  []audit.Kind
	}{
		"it was released": {plant: func(s map[string]line) {
			s["19"] = asking(told(t, split, mine, "", 1, 0, 16), 130)
			s["20"] = told(t, split, mine, a, 2, 160, 16.5).on(150)
			s["21"] = wrote(a, mine, 2, 170, 17)
		}},
		"it was released, and written after that": {plant: func(s map[string]line) {
			s["19"] = asking(told(t, split, mine, "", 1, 0, 16), 130)
			s["20"] = told(t, split, mine, a, 2, 160, 18).on(150)
			s["21"] = wrote(b, mine, 1, 155, 17)
		}, want: []audit.Kind{audit.NotHolder}},
		"it was not": {plant: func(s map[string]line) {
			s["19"] = asking(told(t, split, mine, "", 1, 0, 16), 130)
			s["20"] = told(t, split, mine, a, 2, 160, 16.5).on(130)
		}, want: []audit.Kind{audit.TakenEarly}},
		"the plan was written": {plant: func(s map[string]line) {
			s["04 plan"] = s["04 plan"].on(5).code(504)
		}},
		"the plan was not written": {plant: func(s map[string]line) {
			s["04 plan"] = s["04 plan"].on(5).code(504)
			s["04b"] = planLease(t, split, 35, 6.5).on(5)
		}, want: []audit.Kind{audit.WrongLayout, audit.WrongLayout}},
		"a server that was killed wrote the plan": {plant: func(s map[string]line) {
			s["04 plan"] = planLease(t, split, 35, 6.5).on(6)
		}},
		"the next write was made on the last one": {plant: func(s map[string]line) {
			s["04 plan"] = planLease(t, split, 35, 6.5).on(5)
		}, want: []audit.Kind{audit.WrongLayout, audit.WrongLayout}},
		"nobody wrote the plan": {plant: func(s map[string]line) {
			delete(s, "04 plan")
		}, want: []audit.Kind{audit.WrongLayout, audit.WrongLayout}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			scene := splitScene(t)
			test.plant(scene)
			report := checkPlan(t, halves, linesOf(scene)...)
			requireKinds(t, report, test.want...)
			requireDoubts(t, report)
		})
	}
}

// TestUnknownLeaseWrites has a busy API server answer with a timeout, after which the write takes
// effect or does not.
func TestUnknownLeaseWrites(t *testing.T) {
	held := lease(lower, a, 1, 10, 0)
	renewal, release := lease(lower, a, 1, 0, 1).on(10), lease(lower, "", 1, 0, 1).on(10)
	tests := map[string]struct {
		lines []line
		want  []audit.Kind
	}{
		"renewed, and asked for": {
			lines: []line{renewal.code(504), requested(renewal, 30, 5).on(20), lease(lower, b, 2, 40, 7.5).on(30)},
		},
		"renewed, asked for, and taken early": {
			lines: []line{renewal.code(504), requested(renewal, 30, 5).on(20), lease(lower, b, 2, 40, 6.5).on(30)},
			want:  []audit.Kind{audit.TakenEarly},
		},
		"renewed, and taken early": {
			lines: []line{renewal.code(504), lease(lower, b, 2, 40, 6.5).on(20)},
			want:  []audit.Kind{audit.TakenEarly},
		},
		"renewed by one of two": {
			lines: []line{
				renewal.code(504), lease(lower, a, 1, 0, 2).on(10).code(504), requested(renewal, 30, 5).on(20), lease(lower, b, 2, 40, 7.5).on(30),
			},
		},
		"renewed twice": {
			lines: []line{
				renewal.code(504), lease(lower, a, 1, 0, 2).on(20).code(504), requested(lease(lower, a, 1, 0, 2), 40, 5).on(30),
				lease(lower, b, 2, 50, 8.5).on(40),
			},
		},
		"renewed twice, and taken early": {
			lines: []line{
				renewal.code(504), lease(lower, a, 1, 0, 2).on(20).code(504), requested(lease(lower, a, 1, 0, 2), 40, 5).on(30),
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
