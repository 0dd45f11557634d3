package shard

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Successor returns the plan that follows p and does what the edited plan says. It is for plans
// that people write: it ignores the edited plan's generation, and the names of its shards if they
// would be wrong.
//
//   - The generation is p's plus 1.
//   - A shard that covers the same as a shard of p's ring of that name keeps that shard's ID,
//     whatever its own name, and so need not stop.
//   - Another shard keeps its name if the name is valid, not used in p, and not of the generated
//     kind; else it gets a new one: g<generation>-<nn>, or <group>-g<generation> if it is a group.
//   - Each namespace to be isolated that has no shard of its own is cut out of the shard in which
//     it lies; the parts keep its pin and home. So is each namespace and range of a canary that is
//     not aborted.
//   - Lists are sorted: controllers, isolated namespaces, and the shards of namespaced rings by
//     their ranges.
//
// It cannot know the names that were in use before p: an operator must not give a shard a name that
// has meant something else. The result has passed CheckSuccessor.
func (p Plan) Successor(edited Plan) (Plan, error) {
	next := Plan{Generation: p.Generation + 1, Canary: edited.Canary}
	if n := len(edited.Shards()); n > MaxShards {
		return Plan{}, fmt.Errorf("rings: %d shards: must be at most %d", n, MaxShards)
	}
	for _, r := range edited.Rings {
		r.Controllers, r.Isolate = sortedCopy(r.Controllers), sortedCopy(r.Isolate)
		r.Shards = slices.Clone(r.Shards)
		for i := range r.Shards {
			r.Shards[i].Ring = r.Name
			r.Shards[i].Controllers = sortedCopy(r.Shards[i].Controllers)
		}
		if r.Scope == ScopeNamespaced {
			r.Shards = edited.Canary.cutForCanary(cutOut(r.Shards, r.Isolate))
			slices.SortStableFunc(r.Shards, func(a, b Shard) int { return cmp.Compare(a.Range.Start, b.Range.Start) })
		}
		p.nameShards(&r, next.Generation)
		next.Rings = append(next.Rings, r)
	}
	if err := CheckSuccessor(p, next); err != nil {
		return Plan{}, err
	}
	return next, nil
}

func sortedCopy(names []string) []string {
	return slices.Sorted(slices.Values(names))
}

// cutOut cuts the hash of each namespace out of the shard in which it lies. The parts have no name.
func cutOut(shards []Shard, namespaces []string) []Shard {
	for _, name := range namespaces {
		hash := Hash(name)
		i := slices.IndexFunc(shards, func(s Shard) bool { return s.Namespaced() && s.Range.Contains(hash) })
		if i < 0 || shards[i].Range == onlyHash(hash) {
			continue // in none, which Validate refuses; or alone already
		}
		var parts []Shard
		whole := shards[i]
		whole.Name, whole.Weight = "", 0
		for _, r := range cutRange(whole.Range, hash) {
			whole.Range = r
			parts = append(parts, whole)
		}
		shards = slices.Replace(shards, i, i+1, parts...)
	}
	return shards
}

// cutRange cuts a range into the parts before the hash, of the hash, and after it, without empty
// ones.
func cutRange(r Range, hash uint64) []Range {
	var parts []Range
	alone := onlyHash(hash)
	if r.Start < hash {
		parts = append(parts, Range{Start: r.Start, End: hash})
	}
	parts = append(parts, alone)
	if alone.End != r.End {
		parts = append(parts, Range{Start: alone.End, End: r.End})
	}
	return parts
}

// nameShards gives each shard of the ring the ID of p's shard that covers the same. Otherwise the
// shard keeps a name that is new, or gets one.
func (p Plan) nameShards(r *Ring, generation int64) {
	taken, kept := map[string]bool{}, make([]bool, len(r.Shards))
	old, _ := p.Ring(r.Name)
	for _, s := range old.Shards {
		taken[s.Name] = true
	}
	for i := range r.Shards {
		s := &r.Shards[i]
		for _, was := range old.Shards {
			if sameExtent(old, was, *r, *s) {
				s.Name, kept[i] = was.Name, true
			}
		}
	}
	for i := range r.Shards {
		s := &r.Shards[i]
		if valid := len(validation.IsDNS1123Label(s.Name)) == 0; !kept[i] && valid && !taken[s.Name] && !isGivenName(s.Name) {
			kept[i], taken[s.Name] = true, true
		}
	}
	for i := range r.Shards {
		if !kept[i] {
			r.Shards[i].Name = newName(r.Shards[i], generation, taken)
		}
	}
}

// sameExtent reports whether the shard s of ring a and the shard t of ring b are the same group, or
// both ranges, and cover the same.
func sameExtent(a Ring, s Shard, b Ring, t Shard) bool {
	if s.Group != t.Group {
		return false
	}
	if s.Namespaced() {
		return s.Range == t.Range && joinSorted(a.Controllers) == joinSorted(b.Controllers)
	}
	return joinSorted(s.Controllers) == joinSorted(t.Controllers)
}

// newName returns a name for a shard that is new in this generation, and marks it as taken.
func newName(s Shard, generation int64, taken map[string]bool) string {
	for i := 0; ; i++ {
		name := fmt.Sprintf("g%d-%02d", generation, i)
		if !s.Namespaced() {
			suffix := fmt.Sprintf("-g%d", generation)
			if i > 0 {
				suffix += fmt.Sprintf("-%d", i)
			}
			name = s.Group[:min(len(s.Group), validation.DNS1123LabelMaxLength-len(suffix))] + suffix
		}
		if !taken[name] {
			taken[name] = true
			return name
		}
	}
}

// isGivenName reports whether newName could give this name to some range or group. People may not
// use such names: they would mean something else in that generation.
func isGivenName(name string) bool {
	for _, part := range strings.Split(name, "-") {
		if digits, found := strings.CutPrefix(part, "g"); found && digits != "" && strings.Trim(digits, "0123456789") == "" {
			return true
		}
	}
	return false
}
