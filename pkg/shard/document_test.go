package shard

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// documentPlan has a value in every field.
func documentPlan(t *testing.T) Plan {
	t.Helper()
	p := testPlan(t, 4)
	ring := &p.Rings[0]
	ring.Isolate = []string{"big"}
	ring.Shards = cutOut(ring.Shards, ring.Isolate)
	for i := range ring.Shards {
		ring.Shards[i].Name = string(rune('a' + i))
	}
	ring.Shards[0].Pin, ring.Shards[0].Home, ring.Shards[0].Weight = "flotilla-0", "flotilla-1", 17
	p.Rings[1].Shards[0].Pin = "flotilla-2"
	checkError(t, p.Validate())
	return p
}

// TestDocumentGolden shows what an operator edits, with one line per shard.
func TestDocumentGolden(t *testing.T) {
	p := documentPlan(t)
	text, err := p.Document()
	checkError(t, err)
	checkGolden(t, "plan.document", text)
	for _, s := range p.Shards() {
		lines := 0
		for line := range strings.Lines(text) {
			if strings.Contains(line, `"name":"`+s.Name+`"`) && strings.Contains(line, `{"ring":"`+s.Ring+`"`) {
				lines++
			}
		}
		if lines != 1 {
			t.Errorf("%s is on %d lines, want 1", s.ID, lines)
		}
	}
}

func TestDocumentRoundTrip(t *testing.T) {
	r := newRand(t)
	for range 300 {
		p := randomCase(t, r).plan
		text, err := p.Document()
		checkError(t, err)
		back, err := ParsePlan([]byte(text))
		if err != nil || !reflect.DeepEqual(back, p) {
			t.Fatalf("back from\n%s\n%+v, %v; want %+v", text, back, err, p)
		}
		short, err := json.Marshal(p)
		checkError(t, err)
		if back, err := ParsePlan(short); err != nil || !reflect.DeepEqual(back, p) {
			t.Fatalf("back from %s\n%+v, %v", short, back, err)
		}
	}
}

func TestParsePlanRefuses(t *testing.T) {
	good, err := documentPlan(t).Document()
	checkError(t, err)
	replaced := func(old, with string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the document has no %s", old)
		}
		return strings.Replace(good, old, with, 1)
	}
	for text, words := range map[string][]string{
		"":                                  {"not JSON"},
		good[:len(good)/2]:                  {"not JSON"},
		good + "x":                          {"followed by something else"},
		good + "}":                          {"followed by something else"},
		good + good:                         {"followed by something else"},
		replaced(`"isolate"`, `"insulate"`): {"insulate"},
		replaced(`"pin"`, `"pim"`):          {"pim"},
		replaced(`"generation": 1`, `"generation": 0`):     {"generation", "from 1 to"},
		replaced(`"pin":"flotilla-0"`, `"pin":"Flotilla"`): {"rings[0].shards[0].pin", "Flotilla"},
	} {
		_, err := ParsePlan([]byte(text))
		checkError(t, err, words...)
	}
	if _, err := ParsePlan([]byte(good + "\n \n")); err != nil {
		t.Errorf("trailing white space: %v", err)
	}
}

// TestExtentsModel compares extents with a search for one controller and one hash that are in both.
func TestExtentsModel(t *testing.T) {
	r := newRand(t)
	verdicts := map[bool]int{}
	for range 20000 {
		a, b := Extent{Range: coarseRange(r)}, Extent{Range: coarseRange(r)}
		for _, name := range []string{"a", "b", "c", "d"} {
			if r.IntN(2) == 0 {
				a.Controllers = append(a.Controllers, name)
			}
			if r.IntN(2) == 0 {
				b.Controllers = append([]string{name}, b.Controllers...)
			}
		}
		want := false
		for _, name := range a.Controllers {
			for _, hash := range []uint64{a.Range.Start, b.Range.Start} {
				want = want || strings.Contains(strings.Join(b.Controllers, ""), name) && a.Range.Contains(hash) && b.Range.Contains(hash)
			}
		}
		verdicts[want]++
		if got := a.Overlaps(b); got != want || b.Overlaps(a) != want {
			t.Fatalf("%v overlaps %v: %v, want %v", a, b, got, want)
		}
		same := a.Range == b.Range && joinSorted(a.Controllers) == joinSorted(b.Controllers)
		if a.Equal(b) != same || !a.Equal(a) {
			t.Fatalf("%v equals %v: %v, want %v", a, b, a.Equal(b), same)
		}
	}
	if verdicts[true] < 1000 || verdicts[false] < 1000 {
		t.Errorf("too few of one verdict: %v", verdicts)
	}
}

func TestExtents(t *testing.T) {
	p := testPlan(t, 3)
	all := p.Extents()
	for _, s := range p.Shards() {
		one, found := p.Extent(s.ID)
		if !found || !one.Equal(all[s.ID]) || joinSorted(one.Controllers) != joinSorted(p.ControllersOf(s.ID)) || one.Range != s.Range {
			t.Errorf("extent of %s: %v, %v and %v", s.ID, one, found, all[s.ID])
		}
	}
	if _, found := p.Extent(ID{"namespaces", "nothing"}); found || len(all) != 5 {
		t.Errorf("%d extents, want 5, and none of unknown shards", len(all))
	}
}
