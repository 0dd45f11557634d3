package shard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// randomCensus has up to n random cells, some of them at the ends of the keyspace, some without
// weight and some very heavy.
func randomCensus(r *rand.Rand, n int) Census {
	var c Census
	for range r.IntN(n + 1) {
		cell := Cell{Hash: r.Uint64(), Weight: r.Int64N(100), Namespaces: 1 + r.IntN(3)}
		switch r.IntN(20) {
		case 0:
			cell.Hash = r.Uint64N(2) - 1 // 0 or the greatest.
		case 1:
			cell.Weight = MaxCellWeight >> r.IntN(30)
		case 2:
			cell.Weight = 0
		}
		c = append(c, cell)
	}
	return Merge(c)
}

func TestNewCensus(t *testing.T) {
	c := NewCensus(map[string]int64{"a": 3, "b": 0, "c": -1, "d": MaxCellWeight + 1})
	if len(c) != 4 || c.Total() != 3+MaxCellWeight {
		t.Errorf("%v: want 4 cells and a total of %d", c, 3+MaxCellWeight)
	}
	if got := c.Within(onlyHash(Hash("a"))); len(got) != 1 || got[0] != (Cell{Hash("a"), 3, 1}) {
		t.Errorf("cells of a: %v", got)
	}
	if got := NewCensus(nil); len(got) != 0 || got.Total() != 0 || got.String() != "" {
		t.Errorf("census of nothing: %v", got)
	}
	// No short names have equal hashes, so this uses cells.
	twice := Merge(Census{{5, 2, 1}, {9, 1, 1}}, Census{{5, 4, 2}}, nil)
	if want := (Census{{5, 6, 3}, {9, 1, 1}}); !slices.Equal(twice, want) {
		t.Errorf("merged: %v, want %v", twice, want)
	}
}

func TestCensusText(t *testing.T) {
	r := newRand(t)
	for range 500 {
		c := randomCensus(r, 40)
		back, err := ParseCensus(c.String())
		if err != nil || !slices.Equal(back, c) {
			t.Fatalf("%v: back from text %v, %v", c, back, err)
		}
	}
	if got, want := (Census{{0x4a82, 7, 2}, {^uint64(0), 0, 1}}).String(), "0000000000004a82:7:2,ffffffffffffffff:0:1"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	const hash = "0000000000000001"
	for text, words := range map[string][]string{
		" ":                            {"cell 0", "colons"},
		hash + ":1":                    {"cell 0", "colons"},
		hash + ":1:1:1":                {"colons"},
		hash + ":1:1,":                 {`cell 1 ""`},
		"1:1:1":                        {`hash "1"`, "16 lower-case"},
		"000000000000000A:1:1":         {"16 lower-case"},
		hash + ":-1:1":                 {`weight "-1"`, "0 to"},
		hash + ":01:1":                 {`weight "01"`},
		hash + ":+1:1":                 {`weight "+1"`},
		hash + ":1099511627777:1":      {"1099511627776"},
		hash + ":1:0":                  {`namespaces "0"`, "1 to"},
		hash + ":1:9999999999":         {"namespaces"},
		hash + ":1:1," + hash + ":1:1": {"cell 1", "must be greater than " + hash},
		strings.Repeat(hash+":1:1,", MaxCells) + hash + ":1:1": {"1025 cells", "at most 1024"},
	} {
		_, err := ParseCensus(text)
		checkError(t, err, words...)
	}
}

// TestCompact checks that no weight is lost and that cells begin where cells began. Only what was
// one cell may be heavy, compared with a share that leaves room for packing.
func TestCompact(t *testing.T) {
	r := newRand(t)
	for range 2000 {
		c := randomCensus(r, 300)
		most := 1 + r.IntN(70)
		got := c.Compact(most)
		if len(got) > most {
			t.Fatalf("%d cells, want at most %d", len(got), most)
		}
		if got.Total() != c.Total() {
			t.Fatalf("total %d, want %d", got.Total(), c.Total())
		}
		heavy := c.Total()/int64(max(1, most-1))*2 + 3
		for i, cell := range got {
			rng := Range{Start: cell.Hash}
			if i+1 < len(got) {
				rng.End = got[i+1].Hash
			}
			was := c.Within(rng)
			if len(was) == 0 || was[0].Hash != cell.Hash || was.Total() != cell.Weight {
				t.Fatalf("cell %v was made of %v", cell, was)
			}
			if most > 1 && len(was) > 1 && cell.Weight > heavy {
				t.Fatalf("cell %v of %d is heavier than %d", cell, len(was), heavy)
			}
		}
	}
}

// TestCompactKeepsHeavyAlone has one namespace of 30 % among small ones.
func TestCompactKeepsHeavyAlone(t *testing.T) {
	weights := weightsOf(6, 500)
	name := "ns-250"
	for _, most := range []int{4, 16, 64} {
		c := NewCensus(weights).Compact(most)
		i := slices.IndexFunc(c, func(cell Cell) bool { return cell.Hash == Hash(name) })
		if i < 0 || c[i].Weight != weights[name] || c[i].Namespaces != 1 {
			t.Errorf("compacted to %d: %s is not alone: %v", most, name, c)
		}
	}
}

func TestWithin(t *testing.T) {
	r := newRand(t)
	for range 500 {
		c, rng := randomCensus(r, 30), Range{Start: r.Uint64(), End: r.Uint64()}
		if r.IntN(4) == 0 {
			rng.End = 0
		}
		if rng.Validate() != nil {
			continue
		}
		want := Census{}
		for _, cell := range c {
			if rng.Contains(cell.Hash) {
				want = append(want, cell)
			}
		}
		if got := c.Within(rng); !slices.Equal(got, want) {
			t.Fatalf("within %s: %v, want %v", rng, got, want)
		}
	}
}

func FuzzParseCensus(f *testing.F) {
	f.Add("")
	f.Add("0000000000004a82:7:2,ffffffffffffffff:0:1")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCensus(s)
		if err == nil && c.String() != s {
			t.Errorf("ParseCensus accepts %q, which is %q", s, c)
		}
		if err == nil && c.Compact(3).Total() != c.Total() {
			t.Error(fmt.Sprint("compacting lost weight of ", s))
		}
	})
}
