package main

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// plansOf returns plans that cut the keyspace into these numbers of ranges, with one group.
func plansOf(t *testing.T, numbers ...int) []shard.Plan {
	t.Helper()
	var plans []shard.Plan
	for _, n := range numbers {
		ranges, err := shard.EqualRanges(n)
		if err != nil {
			t.Fatal(err)
		}
		plan := shard.Plan{Rings: []shard.Ring{{Name: "namespaces"}, {Name: "cluster"}}}
		for i, r := range ranges {
			plan.Rings[0].Shards = append(plan.Rings[0].Shards, shard.Shard{ID: shard.ID{Ring: "namespaces", Name: fmt.Sprint(i)}, Range: r})
		}
		plan.Rings[1].Shards = []shard.Shard{{ID: shard.ID{Ring: "cluster", Name: "nodes"}, Group: "nodes"}}
		plans = append(plans, plan)
	}
	return plans
}

// ledgerOf reads lines such as "3 a begun 1 0/2" (at 3 ms crew a begins work 1 on the first of two
// ranges), "5 a ended 1", "2 b begun 1 nodes" and "9 a died".
func ledgerOf(t *testing.T, lines ...string) *ledger {
	t.Helper()
	l := newLedger(plansOf(t, 2, 3)...)
	for _, line := range lines {
		var at int64
		var crew, what, cover string
		var number int64
		_, _ = fmt.Sscan(line, &at, &crew, &what, &number, &cover)
		m := message{Kind: kind(what), At: at * int64(time.Millisecond), Member: crew, Work: number}
		var i, n int
		if _, err := fmt.Sscanf(cover, "%d/%d", &i, &n); err == nil {
			m.Range = plansOf(t, n)[0].Rings[0].Shards[i].Range.String()
		} else {
			m.Group = cover
		}
		if what == "died" {
			l.died(crew, m.At)
		} else if err := l.take(crew, m); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

var begin = []string{"1 a begun 1 0/2", "2 a begun 2 1/2", "3 b begun 1 nodes"}

func TestLedger(t *testing.T) {
	for name, test := range map[string]struct {
		lines    []string
		overlaps int
		whole    int64 // in ms; 0 if not whole
		gaps     []time.Duration
	}{
		"whole":        {lines: begin, whole: 3},
		"a part lacks": {lines: begin[1:]},
		"handed over":  {lines: append(begin[:3:3], "10 a ended 1", "14 b begun 2 0/2"), whole: 14, gaps: []time.Duration{4 * time.Millisecond}},
		"messages of two crews cross": {
			lines: append(begin[:3:3], "14 b begun 2 0/2", "10 a ended 1"), whole: 10, gaps: []time.Duration{4 * time.Millisecond},
		},
		"two at a time":   {lines: append(begin[:3:3], "10 b begun 2 0/2", "11 a ended 1"), whole: 11, overlaps: 1},
		"two of one crew": {lines: append(begin[:3:3], "10 a begun 3 0/2")[:4], overlaps: 1},
		"killed": {
			lines: append(begin[:3:3], "10 a died", "30 b begun 2 1/2", "40 b begun 3 0/2"), whole: 40,
			gaps: []time.Duration{20 * time.Millisecond, 30 * time.Millisecond},
		},
		"of another plan": {
			lines: append(begin[:3:3], "10 a ended 1", "12 b begun 2 0/3", "13 a ended 2", "15 b begun 3 1/3", "16 b begun 4 2/3"), whole: 16,
			gaps: []time.Duration{2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond},
		},
		"of two plans at a time": {lines: append(begin[:3:3], "10 a ended 1", "12 b begun 2 1/3"), overlaps: 1, gaps: []time.Duration{2 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledgerOf(t, test.lines...)
			if found := l.overlaps(); len(found) != test.overlaps {
				t.Errorf("%d overlaps, want %d: %s", len(found), test.overlaps, strings.Join(found, "; "))
			}
			whole, err := l.isWhole()
			if whole != test.whole*int64(time.Millisecond) || (err == nil) != (test.whole != 0) {
				t.Errorf("whole at %v, %v, want %d ms", time.Duration(whole), err, test.whole)
			}
			if gaps := l.gaps(4*int64(time.Millisecond), 1<<62); len(gaps)+len(test.gaps) > 0 && !reflect.DeepEqual(gaps, test.gaps) {
				t.Errorf("gaps %v, want %v", gaps, test.gaps)
			}
		})
	}
}

func TestLayOut(t *testing.T) {
	for n, want := range map[int]string{
		2:   "crew-solo:1 crew-00:1",
		3:   "crew-solo:1 crew-00:1 crew-01:1",
		10:  "crew-solo:1 crew-00:5 crew-01:4",
		30:  "crew-solo:1 crew-tenth:3 crew-00:9 crew-01:9 crew-02:8",
		100: "crew-solo:1 crew-tenth:10 crew-00:10 crew-01:10 crew-02:10 crew-03:10 crew-04:10 crew-05:10 crew-06:10 crew-07:10 crew-08:9",
	} {
		var got []string
		total := 0
		for _, p := range layOut(n, 10) {
			got = append(got, fmt.Sprintf("%s:%d", p.name, len(p.members)))
			total += len(p.members)
		}
		if text := strings.Join(got, " "); text != want || total != n {
			t.Errorf("%d members: %s, want %s", n, text, want)
		}
	}
}

func TestPlans(t *testing.T) {
	for members, want := range map[int]int{3: 21, 10: 105, 30: 305, 50: 505, 100: 1000} {
		first, second, err := plansFor(members)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(first.Shards()); n != want {
			t.Errorf("%d members: %d shards, want %d", members, n, want)
		}
		if err := shard.CheckSuccessor(first, second); err != nil {
			t.Errorf("%d members: the second plan: %v", members, err)
		}
	}
}

func TestReadsOf(t *testing.T) {
	at := func(ms int64, kind string) message { return message{At: ms * int64(time.Millisecond), Text: kind} }
	got := readsOf([]message{at(2500, "list"), at(100, "watch"), at(900, "list"), at(1050, "list"), at(1150, "list")})
	want := reads{Count: 5, MostASecond: 3, ByKind: map[string]int{"list": 4, "watch": 1}, Seconds: []int{3, 1, 1}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
