package shard

import (
	"cmp"
	"slices"
	"sort"
)

// MaxCellWeight is the maximum weight, in objects, of one cell of a census; a greater weight counts
// as this one. Up to 4 million such cells add up without overflow.
const MaxCellWeight int64 = 1 << 40

// Cell is a stretch of the keyspace, from its hash up to that of the next cell of its census, and
// what lies there. The planner cuts ranges between cells and never inside one.
type Cell struct {
	// Hash is where the cell begins: the hash of its first namespace.
	Hash uint64
	// Weight is how many objects its namespaces have, 0 to MaxCellWeight.
	Weight int64
	// Namespaces is how many namespaces it has, 1 or more.
	Namespaces int
}

// Census is the distribution of the namespaces' objects over the keyspace: cells in strictly
// ascending order of their hashes. Each holder publishes its shard's census on the shard's Lease,
// and the planner merges them. It must not be changed once it is shared.
type Census []Cell

// NewCensus returns a census with a cell for each namespace, given how many objects each has.
// Namespaces with one hash share a cell. Weights below 0 count as 0, and those above MaxCellWeight
// as MaxCellWeight.
func NewCensus(weights map[string]int64) Census {
	cells := make(Census, 0, len(weights))
	for name, weight := range weights {
		cells = append(cells, Cell{Hash: Hash(name), Weight: clampWeight(weight), Namespaces: 1})
	}
	return cells.joined()
}

// Weights is what the planner knows about the weights for one ring, in objects.
type Weights struct {
	// Census is the census of the whole ring, merged from those of its shards.
	Census Census
	// Carried is what each member carries in addition to the ring and keeps: groups of
	// cluster-scoped controllers, and shards of other rings. Each weighs 0 to MaxCellWeight; a
	// member without an entry counts as 0.
	Carried map[string]int64
	// Groups is the known weight of each shard of other rings, 0 to MaxCellWeight each. The planner
	// writes it into the plan, but decides by Carried.
	Groups map[ID]int64
}

// carriedBy returns what the member carries, clamped to the allowed range.
func (w Weights) carriedBy(member string) int64 { return clampWeight(w.Carried[member]) }

func clampWeight(w int64) int64 { return min(max(w, 0), MaxCellWeight) }

// joined sorts the cells in place and adds up those with one hash.
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

// Merge returns one census made of those of several shards. It adds up cells with one hash.
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

// Within returns the cells that begin in the range. All cells of a shard's own census lie in its
// range; a cell that begins before the range and stretches into it does not count.
func (c Census) Within(r Range) Census {
	from := sort.Search(len(c), func(i int) bool { return c[i].Hash >= r.Start })
	to := len(c)
	if r.End != 0 {
		to = sort.Search(len(c), func(i int) bool { return c[i].Hash >= r.End })
	}
	return slices.Clip(c[from:max(from, to)])
}

// Compact returns a census of the same weight with at most that many cells (at least 1), of about
// equal weight: only a cell of a single namespace is heavier than about twice an equal share. A
// cell that is heavier than the share stays a cell of its own, so that ranges can be cut around it.
func (c Census) Compact(most int) Census {
	most = max(most, 1)
	if len(c) <= most {
		return slices.Clone(c)
	}
	total := c.Total()
	// With a share of 2*total/(most-1) there are few enough cells, since any two neighbours
	// together weigh more than the share. A smaller share may do.
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

// pack joins neighbours while together they do not exceed the share.
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
