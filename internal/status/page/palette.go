package page

import (
	"hash/fnv"
	"strconv"

	"github.com/flotilla-kube/flotilla/internal/status"
)

const (
	// colours is how many fills the style sheet has, patterns how many patterns each fill can have.
	// Beyond these, members look alike, except for their tags.
	colours  = 8
	patterns = 3
	slots    = colours * patterns
)

// palette gives each member a slot: a colour, a pattern and a letter. Members keep theirs while the
// set of members stays the same, and nearly all of them when it changes; every member's page uses
// the same ones.
type palette map[string]int

// newPalette has a slot for every member that the document names.
func newPalette(d Document) palette {
	names := map[string]bool{}
	for _, m := range d.Members {
		names[m.Name] = true
	}
	for _, r := range d.Rings {
		for _, s := range r.Shards {
			names[s.Holder], names[s.Wanted] = true, true
		}
	}
	for _, o := range d.Older {
		names[o.Holder] = true
	}
	delete(names, "")
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	p, taken := palette{}, map[int]bool{}
	for _, name := range status.SortNaturally(sorted) {
		slot := free(wanted(name), taken)
		p[name], taken[slot] = slot, true
	}
	return p
}

// wanted is the slot of a name in a fleet of its own.
func wanted(name string) int {
	if _, ordinal := status.Ordinal(name); ordinal >= 0 && ordinal < slots {
		return ordinal
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return int(h.Sum32() % colours)
}

// free returns the first slot from the wanted one on, plain colours first; beyond the last slot
// they start again with another tag.
func free(want int, taken map[int]bool) int {
	for round := want / colours; ; round++ {
		for i := range colours {
			if slot := round*colours + (want+i)%colours; !taken[slot] {
				return slot
			}
		}
	}
}

// tag returns the member's letter, empty if it is not a member.
func (p palette) tag(name string) string {
	slot, known := p[name]
	if !known {
		return ""
	}
	tag := string(rune('A' + slot%slots))
	if round := slot / slots; round > 0 {
		tag += strconv.Itoa(round + 1)
	}
	return tag
}

func (p palette) colour(name string) int { return p[name] % colours }

// pattern is 0 for a plain fill.
func (p palette) pattern(name string) int { return p[name] / colours % patterns }
