package shard

import (
	"cmp"
	"slices"
	"sort"
)

// MaxCellWeight is the greatest weight, in objects, that one cell of a census
// may have; what is more counts as this. Up to 4 million cells of it add up
// without overflow.
const MaxCellWeight int64 = 1 << 40

// Cell is a stretch of the keyspace, from its hash up to that of the next cell
// of its census, and what lies there. The planner cuts ranges between cells
// and never in one.
type Cell struct {
	// Hash is where the cell begins: the hash of its first namespace.
	Hash uint64
	// Weight is how many objects its namespaces have, 0 to MaxCellWeight.
	Weight int64
	// Namespaces is how many namespaces it has, 1 or more.
	Namespaces int
}

// Census is how the objects of the namespaces lie in the keyspace: cells in
// strictly ascending order of their hashes. Holders publish one for each shard
// on its Lease, and whoever plans merges them. It is not to be changed once it
// is shared.
type Census []Cell

// NewCensus returns a census with a cell for each namespace, given how many
// objects each has. Namespaces of one hash share a cell. Weights below 0 count
// as 0, and above MaxCellWeight as that.
func NewCensus(weights map[string]int64) Census {
	cells := make(Census, 0, len(weights))
	for name, weight := range weights {
		cells = append(cells, Cell{Hash: Hash(name), Weight: clampWeight(weight), Namespaces: 1})
	}
	return cells.joined()
}

// Weights is what the planner goes by for one ring, in objects.
type Weights struct {
	// Census is that of the whole ring, merged from those of its shards.
	Census Census
	// Carried is what each member carries beside the ring and keeps: groups of
	// cluster-scoped controllers, and shards of other rings. A member that is not
	// in it carries nothing that is known; each weighs 0 to MaxCellWeight.
	Carried map[string]int64
	// Groups is what each shard of other rings weighs, as far as that is known, 0 to MaxCellWeight
	// each. The planner writes it into the plan, and goes by Carried.
	Groups map[ID]int64
}

// carriedBy returns what the member carries, within its bounds.
func (w Weights) carriedBy(member string) int64 { return clampWeight(w.Carried[member]) }

func clampWeight(w int64) int64 { return min(max(w, 0), MaxCellWeight) }

// joined sorts the cells in place and adds up those of one hash.
func (c Census) joined() Census {
	slices.SortFunc(c, func(a, b Cell) int { return cmp.Compare(a.Hash, b.Hash) })
	out := c[:0]
	for _, cell := range c {
		if last := len(out) - 1; last >= 0 && out[last].Hash == cell.Hash {
			out[last].Weight = clampWeight(out[last].Weight + cell.Weight)
			out[last].Namespaces += cell.Namespaces
			continue
		}
		out = append(out, cell)
	}
	return out
}

// Merge returns one census out of those of several shards. Cells of one hash
// are added up.
func Merge(parts ...Census) Census {
	return slices.Concat(parts...).joined()
}

// Total returns the weight of all cells, in objects.
func (c Census) Total() int64 {
	total := int64(0)
	for _, cell := range c {
		total += cell.Weight
	}
	return total
}

// Within returns the cells that begin in the range. Those of a shard's own
// census lie in its range as a whole; of a cell that begins before the range
// and stretches into it, nothing is counted.
func (c Census) Within(r Range) Census {
	from := sort.Search(len(c), func(i int) bool { return c[i].Hash >= r.Start })
	to := len(c)
	if r.End != 0 {
		to = sort.Search(len(c), func(i int) bool { return c[i].Hash >= r.End })
	}
	return slices.Clip(c[from:max(from, to)])
}

// Compact returns a census of the same weight with at most that many cells (at
// least 1), of about equal weight: none is heavier than twice an equal share,
// about, unless it is one namespace. What was a cell heavier than the share
// stays a cell of its own, so that its neighbours can be cut away from it.
func (c Census) Compact(most int) Census {
	most = max(most, 1)
	if len(c) <= most {
		return slices.Clone(c)
	}
	total := c.Total()
	// With a share of 2*total/(most-1) the cells suffice, since any two
	// neighbours together weigh more than the share. Less may do.
	low, high := total/int64(most), total
	if most > 1 {
		high = min(total, total/int64(most-1)*2+2)
	}
	for step := int64(0); high-low > total/int64(most)/32 && step < 64; step++ {
		if mid := low + (high-low)/2; c.packs(mid, most) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return c.pack(high)
}

// packs reports whether pack with this share needs at most that many cells.
func (c Census) packs(share int64, most int) bool {
	cells, weight := 0, int64(0)
	for i, cell := range c {
		if i == 0 || weight+cell.Weight > share {
			cells, weight = cells+1, 0
		}
		weight += cell.Weight
	}
	return cells <= most
}

// pack joins neighbours as long as together they do not exceed the share.
func (c Census) pack(share int64) Census {
	var out Census
	for _, cell := range c {
		last := len(out) - 1
		if last < 0 || out[last].Weight+cell.Weight > share {
			out = append(out, cell)
			continue
		}
		out[last].Weight += cell.Weight
		out[last].Namespaces += cell.Namespaces
	}
	return out
}
