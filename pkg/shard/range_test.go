package shard

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserver "k8s.io/apiserver/pkg/sharding"
)

func TestRangeBoundaries(t *testing.T) {
	const top = math.MaxUint64
	for _, tc := range []struct {
		r       Range
		in, out []uint64
	}{
		{Range{}, []uint64{0, 1, 1 << 63, top}, nil},
		{Range{0, 1}, []uint64{0}, []uint64{1, 2, top}},
		{Range{5, 8}, []uint64{5, 6, 7}, []uint64{0, 4, 8, 9, top}},
		{Range{1 << 63, 0}, []uint64{1 << 63, top}, []uint64{0, 1<<63 - 1}},
		{Range{top, 0}, []uint64{top}, []uint64{0, top - 1}},
		{Range{top - 1, top}, []uint64{top - 1}, []uint64{top - 2, top, 0}},
	} {
		checkError(t, tc.r.Validate())
		for _, h := range tc.in {
			if !tc.r.Contains(h) {
				t.Errorf("%s does not contain %x", tc.r, h)
			}
		}
		for _, h := range tc.out {
			if tc.r.Contains(h) {
				t.Errorf("%s contains %x", tc.r, h)
			}
		}
		if got, want := tc.r.IsEverything(), len(tc.out) == 0; got != want {
			t.Errorf("%s: IsEverything() = %v, want %v", tc.r, got, want)
		}
	}
}

func TestNewRange(t *testing.T) {
	for _, tc := range []struct {
		start, end uint64
		words      []string
	}{
		{0, 0, nil},
		{0, 1, nil},
		{math.MaxUint64, 0, nil},
		{5, 5, []string{"0x0000000000000005-0x0000000000000005", "start must be less than end"}},
		{6, 5, []string{"start must be less than end"}},
	} {
		r, err := NewRange(tc.start, tc.end)
		checkError(t, err, tc.words...)
		if r != (Range{tc.start, tc.end}) {
			t.Errorf("NewRange(%d, %d) = %v", tc.start, tc.end, r)
		}
	}
}

// TestOverlapsModel compares Overlaps with trying every hash of a small keyspace, whose last hash
// stands for the end.
func TestOverlapsModel(t *testing.T) {
	const size = 6
	var all []Range
	for start := range uint64(size) {
		for end := start + 1; end < size; end++ {
			all = append(all, Range{start, end})
		}
		all = append(all, Range{start, 0})
	}
	for _, a := range all {
		for _, b := range all {
			want := false
			for h := range uint64(size) {
				want = want || (a.Contains(h) && b.Contains(h))
			}
			if got := a.Overlaps(b); got != want {
				t.Errorf("%s overlaps %s: %v, want %v", a, b, got, want)
			}
		}
	}
}

func randomRange(r *rand.Rand) Range {
	for {
		out := Range{Start: r.Uint64() >> r.IntN(64), End: r.Uint64() >> r.IntN(64)}
		if r.IntN(4) == 0 {
			out.End = 0
		}
		if out.Validate() == nil {
			return out
		}
	}
}

// TestSelectorIsUpstreams parses selectors as the API server does, and queries its matcher for
// namespaces inside, outside and on both bounds.
func TestSelectorIsUpstreams(t *testing.T) {
	r := newRand(t)
	for range 300 {
		ns := fmt.Sprintf("ns-%d", r.IntN(1000))
		h := Hash(ns)
		other := randomRange(r)
		for _, rng := range []Range{Everything(), other, {h, h + 1}, {h, 0}, {0, h}, {h + 1, 0}, {h - 1, h}, {0, h + 1}} {
			selector, err := apiserver.Parse(rng.Selector())
			if err != nil {
				t.Fatalf("%s: %v", rng.Selector(), err)
			}
			if got := selector.String(); got != rng.Selector() {
				t.Errorf("Selector() = %s, upstream writes %s", rng.Selector(), got)
			}
			obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "x"}}
			want, err := selector.Matches(obj)
			if err != nil {
				t.Fatal(err)
			}
			if got := rng.ContainsNamespace(ns); got != want {
				t.Errorf("%s contains %s (%x): %v, the API server says %v", rng, ns, h, got, want)
			}
		}
	}
}

func TestRangeText(t *testing.T) {
	for r, want := range map[Range]string{
		{}:                       "0x0000000000000000-0x10000000000000000",
		{0, 1 << 60}:             "0x0000000000000000-0x1000000000000000",
		{1 << 63, 0}:             "0x8000000000000000-0x10000000000000000",
		{0xabc, math.MaxUint64}:  "0x0000000000000abc-0xffffffffffffffff",
		{math.MaxUint64, 0}:      "0xffffffffffffffff-0x10000000000000000",
		{0xdeadbeef, 0xdeadbef0}: "0x00000000deadbeef-0x00000000deadbef0",
	} {
		if got := r.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
		if got, err := ParseRange(want); got != r || err != nil {
			t.Errorf("ParseRange(%q) = %v, %v", want, got, err)
		}
		data, err := json.Marshal(r)
		if err != nil || string(data) != `"`+want+`"` {
			t.Errorf("as JSON %s, %v; want %q", data, err, want)
		}
		var back Range
		if err := json.Unmarshal(data, &back); back != r || err != nil {
			t.Errorf("back from JSON %v, %v; want %v", back, err, r)
		}
	}
	if _, err := json.Marshal(Range{5, 5}); err == nil {
		t.Error("an empty range was written as JSON")
	}
	kept := Range{1, 2}
	if err := kept.UnmarshalText([]byte("nonsense")); err == nil || kept != (Range{1, 2}) {
		t.Errorf("UnmarshalText of nonsense left %s, %v", kept, err)
	}
}

func TestParseRangeRefuses(t *testing.T) {
	const zero, top = "0x0000000000000000", "0x10000000000000000"
	for s, words := range map[string][]string{
		"":                            {`range ""`, "hyphen"},
		zero:                          {"hyphen"},
		"0-" + top:                    {`start "0"`, "16 lower-case"},
		zero + "-0x1":                 {`end "0x1"`, "16 lower-case", top},
		zero + "-" + zero:             {`end "` + zero, "greater than start", top},
		top + "-" + top:               {`start "` + top, "16 lower-case"},
		"0x000000000000000A-" + top:   {`start "0x000000000000000A"`, "lower-case"},
		"0X0000000000000000-" + top:   {`start "0X`},
		"0x+000000000000000-" + top:   {`start "0x+`},
		"0x0_00000000000000-" + top:   {`start "0x0_`},
		"0x0000000000000005-" + zero:  {"end"},
		zero + "--" + top:             {`end "-`},
		zero + "-0x20000000000000000": {`end "0x2`},
		zero + "-" + top + " ":        {"end"},
		"0x0000000000000002-" + "0x0000000000000002": {"start must be less than end"},
		"0x0000000000000002-" + "0x0000000000000001": {"start must be less than end"},
	} {
		_, err := ParseRange(s)
		checkError(t, err, words...)
	}
}

func FuzzParseRange(f *testing.F) {
	for _, s := range []string{"", "-", Everything().String(), Range{1, 2}.String(), "0x0000000000000002-0x0000000000000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRange(s)
		if err != nil {
			return
		}
		if r.String() != s {
			t.Errorf("ParseRange accepts %q, which is %q", s, r)
		}
		checkError(t, r.Validate())
		if _, err := apiserver.Parse(r.Selector()); err != nil {
			t.Errorf("the API server refuses %s: %v", r.Selector(), err)
		}
	})
}
