package shard

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxCanaryNamespaces is how many namespaces a canary may name: each gets its own shard in
	// every namespaced ring.
	MaxCanaryNamespaces = 64
	maxVersion          = 64
	maxBy               = 256
)

// Canary is a version of the program that is tried on a part of the namespaces. While there are
// both members of this version and others, those of this version get the canary's shards and
// nothing else, and the others get all the rest: see Plan.SettleVersions. The plan keeps the canary
// until an operator promotes the version, so the restriction survives every restart.
type Canary struct {
	// Version is the version that is tried, as its members publish it: "v1.38.0".
	Version string `json:"version"`
	// Namespaces are the namespaces that it is tried on, sorted. Each has its own shard in every
	// namespaced ring.
	Namespaces []string `json:"namespaces,omitempty"`
	// Ranges are parts of the keyspace that it is tried on. No shard lies partly inside one.
	Ranges []Range `json:"ranges,omitempty"`
	// Since is when an operator began or aborted it, by the operator's clock, in RFC 3339 format.
	Since string `json:"since,omitempty"`
	// By is the name that the operator gave; empty if none.
	By string `json:"by,omitempty"`
	// Aborted leaves the version's members without any shard while there are others.
	Aborted bool `json:"aborted,omitempty"`
}

// String returns the canary as a few words: "v1.38.0 on team-a, team-b".
func (c Canary) String() string {
	on := slices.Clone(c.Namespaces)
	for _, r := range c.Ranges {
		on = append(on, r.String())
	}
	text := c.Version + " on " + strings.Join(on, ", ")
	if c.Aborted {
		text += ", aborted"
	}
	return text
}

// line returns the canary for Plan.Digest.
func (c *Canary) line() string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("canary %s by %q since %s\n", c, c.By, c.Since)
}

// Equal reports whether both are equal, or both nil.
func (c *Canary) Equal(other *Canary) bool { return c.line() == other.line() }

// parts returns the parts of the keyspace that the canary is for.
func (c *Canary) parts() []Range {
	if c == nil {
		return nil
	}
	parts := slices.Clone(c.Ranges)
	for _, name := range c.Namespaces {
		parts = append(parts, onlyHash(Hash(name)))
	}
	return parts
}

// Tries reports whether the canary's version is tried on the shard. It is false for groups, which
// have no canary, and for an aborted canary.
func (p Plan) Tries(s Shard) bool {
	return p.Canary != nil && !p.Canary.Aborted && s.Namespaced() &&
		slices.ContainsFunc(p.Canary.parts(), func(part Range) bool { return part.covers(s.Range) })
}

// covers reports whether the other range lies completely in this one.
func (r Range) covers(other Range) bool {
	return r.Start <= other.Start && (r.End == 0 || other.End != 0 && other.End <= r.End)
}

// canary checks the plan's canary. No shard may lie partly inside one of its parts.
func (v *planValidator) canary(path *field.Path, p Plan) {
	c := p.Canary
	if c == nil {
		return
	}
	v.text(path.Child("version"), c.Version, maxVersion)
	if c.Version == "" || strings.Contains(c.Version, " ") {
		v.add(field.Invalid(path.Child("version"), c.Version, "must be a version as members publish it, such as v1.38.0"))
	}
	v.text(path.Child("by"), c.By, maxBy)
	v.text(path.Child("since"), c.Since, maxVersion)
	if len(c.Namespaces)+len(c.Ranges) == 0 {
		v.add(field.Required(path.Child("namespaces"), "a canary is tried on at least one namespace"))
	}
	if n := len(c.Namespaces) + len(c.Ranges); n > MaxCanaryNamespaces {
		v.add(field.TooMany(path.Child("namespaces"), n, MaxCanaryNamespaces))
		return
	}
	for i, name := range c.Namespaces {
		at := path.Child("namespaces").Index(i)
		for _, msg := range validation.IsDNS1123Label(name) {
			v.add(field.Invalid(at, name, msg))
		}
		if i > 0 && c.Namespaces[i-1] >= name {
			v.add(field.Invalid(at, name, fmt.Sprintf("must be sorted and listed once, but follows %q", c.Namespaces[i-1])))
		}
	}
	for i, r := range c.Ranges {
		if err := r.Validate(); err != nil {
			v.add(field.Invalid(path.Child("ranges").Index(i), r.String(), "start must be less than end"))
			return
		}
	}
	if c.Aborted {
		return // the planner may merge the shards again
	}
	for _, part := range c.parts() {
		for _, s := range p.Shards() {
			if s.Namespaced() && part.Overlaps(s.Range) && !part.covers(s.Range) {
				v.add(field.Invalid(path, part.String(), fmt.Sprintf("no shard may lie in and outside of what the canary is for, but %q does, with the range %s", s.ID, s.Range)))
			}
		}
	}
}

func (v *planValidator) text(path *field.Path, text string, most int) {
	if len(text) > most {
		v.add(field.TooLong(path, "", most))
	}
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		v.add(field.Invalid(path, text, "must be printable text"))
	}
}

// cutForCanary cuts the shards of a namespaced ring at the bounds of the canary's parts. The pieces
// of a shard have no name, and keep its pin and home.
func (c *Canary) cutForCanary(shards []Shard) []Shard {
	if c == nil || c.Aborted {
		return shards
	}
	for _, part := range c.parts() {
		for _, bound := range []uint64{part.Start, part.End} {
			i := slices.IndexFunc(shards, func(s Shard) bool { return s.Namespaced() && bound != s.Range.Start && s.Range.Contains(bound) })
			if i < 0 || bound == 0 {
				continue
			}
			before, after := shards[i], shards[i]
			before.Name, before.Weight, before.Range.End = "", 0, bound
			after.Name, after.Weight, after.Range.Start = "", 0, bound
			shards = slices.Replace(slices.Clone(shards), i, i+1, before, after)
		}
	}
	return shards
}

// SettleVersions is SettleRing for a plan with a canary. tried are the members of the canary's
// version. While there are both tried members and others,
//
//   - the shards that the canary is for are settled among the tried members;
//   - all other shards, and all groups, are settled among the others.
//
// A shard's home counts within these bounds: a home that is not among the members that may have the
// shard is treated as a member that is away. So a shard that goes to a tried member stays with it
// while those are evenly loaded, and every shard goes home once the canary is aborted. If all
// members are tried, or none is, every shard is settled among all of them: a shard with an owner
// matters more than the owner's version.
//
// It is pure and stable as SettleRing is: each of the two sets of shards is settled by itself,
// among members that the other set does not have.
func (p Plan) SettleVersions(
	ring string, members, tried []string, home Placement, holders map[ID]string, newest []string, beside map[string]int64,
) Placement {
	trying, others := p.divide(members, tried)
	r, found := p.Ring(ring)
	if !found || len(trying) == 0 {
		return p.SettleRing(ring, members, home, holders, newest, beside)
	}
	owners := map[ID]string{}
	settle := func(among []string, takes func(Shard) bool) {
		part := r
		part.Shards = slices.DeleteFunc(slices.Clone(r.Shards), func(s Shard) bool { return !takes(s) })
		if len(part.Shards) > 0 {
			of := Plan{Generation: p.Generation, Rings: []Ring{part}}
			maps.Copy(owners, of.SettleRing(ring, among, home.of(part), holders, newest, beside).owners)
		}
	}
	settle(others, func(s Shard) bool { return !p.Tries(s) })
	settle(trying, p.Tries)
	return placementOf(owners)
}

// divide returns the tried members and the others; none and all of them if the canary does not
// divide them.
func (p Plan) divide(members, tried []string) (trying, others []string) {
	for _, m := range members {
		if slices.Contains(tried, m) {
			trying = append(trying, m)
		} else {
			others = append(others, m)
		}
	}
	if p.Canary == nil || len(trying) == 0 || len(others) == 0 {
		return nil, members
	}
	return trying, others
}

// MembersOfGroups returns the members that may get what the plan's canary is not for, such as
// groups: see SettleVersions.
func (p Plan) MembersOfGroups(members, tried []string) []string {
	_, others := p.divide(members, tried)
	return others
}

// of returns the placement of the ring's shards alone.
func (p Placement) of(r Ring) Placement {
	owners := make(map[ID]string, len(r.Shards))
	for _, s := range r.Shards {
		if owner, placed := p.owners[s.ID]; placed {
			owners[s.ID] = owner
		}
	}
	return placementOf(owners)
}

// Promoted returns the plan without its canary. The canary's shards stay with their holders, which
// become their homes: they do not go back to the members that had them before.
func (p Plan) Promoted(holder func(ID) string) Plan {
	next := p.WithShards(func(s *Shard) {
		if name := holder(s.ID); p.Tries(*s) && name != "" {
			s.Home = name
		}
	})
	next.Canary = nil
	return next
}

// PartOfShare returns a part of the ring's keyspace that has about share, over 0 to 1, of the
// census' weight, and its actual share: the nearest among the parts that begin where a shard does.
// The part does not contain the hashes in without, and ends with a shard if that is as near. It
// returns false if no part comes within half of the share.
func (r Ring) PartOfShare(c Census, share float64, without ...uint64) (part Range, has float64, found bool) {
	total := float64(c.Total())
	starts := make([]uint64, 0, len(r.Shards))
	for _, s := range r.Shards {
		starts = append(starts, s.Range.Start)
	}
	slices.Sort(starts)
	best := math.Inf(1)
	for i, start := range starts {
		sum, ends := 0.0, starts[i+1:]
		within := c.Within(Range{Start: start})
		for j, cell := range within {
			sum += float64(cell.Weight)
			end := uint64(0)
			if j+1 < len(within) {
				end = within[j+1].Hash
			}
			// A shard that ends between the two cells cuts nothing.
			for len(ends) > 0 && ends[0] <= cell.Hash {
				ends = ends[1:]
			}
			if len(ends) > 0 && (end == 0 || ends[0] <= end) {
				end = ends[0]
			}
			candidate := Range{Start: start, End: end}
			if slices.ContainsFunc(without, candidate.Contains) {
				break
			}
			if off := math.Abs(sum/total - share); off < best {
				best, part, has = off, candidate, sum/total
			}
		}
	}
	return part, has, total > 0 && best <= share/2
}
