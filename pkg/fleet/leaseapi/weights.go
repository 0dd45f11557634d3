package leaseapi

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// noNamespaces is how a Lease shows the census of a shard without namespaces. An empty annotation
// would mean no census at all.
const noNamespaces = "none"

// CensusText returns the census of a shard as it appears on its Lease.
func CensusText(census shard.Census) string {
	if len(census) == 0 {
		return noNamespaces
	}
	return census.String()
}

// CensusOn returns what the shard's holder has published on its Lease, and whether it has published
// anything readable.
func CensusOn(lease election.Observation) (census shard.Census, published bool) {
	text := lease.Annotations[CensusAnnotation]
	if text == noNamespaces {
		return nil, true
	}
	census, err := shard.ParseCensus(text)
	return census, text != "" && err == nil
}

// maxMemory is more than any process has, in bytes.
const maxMemory = 1 << 50

// ShardMemory is an estimate of the memory that a shard takes at its holder, in bytes. Both values
// are 0 or more.
type ShardMemory struct {
	// Cached is what is cached for the shard. Fixed is what it takes without any object.
	Cached, Fixed int64
}

// Total returns the bytes of both.
func (m ShardMemory) Total() int64 { return m.Cached + m.Fixed }

// String returns the two numbers separated by a plus sign, as on a Lease.
func (m ShardMemory) String() string { return fmt.Sprintf("%d+%d", m.Cached, m.Fixed) }

// Memory is what a member publishes about its memory, in bytes. Both values are 0 or more.
type Memory struct {
	// Live is the heap that is really in use. Beside is an estimate of the part of it that belongs
	// to no shard: the process itself, and what ranges share.
	Live, Beside int64
}

// String returns the two numbers separated by a slash, as on a Lease.
func (m Memory) String() string { return fmt.Sprintf("%d/%d", m.Live, m.Beside) }

// ShardMemoryOn returns what a holder has published on the Lease of its shard, and whether anybody
// has published anything readable.
func ShardMemoryOn(lease election.Observation) (m ShardMemory, published bool) {
	m.Cached, m.Fixed, published = twoNumbers(lease.Annotations[MemoryAnnotation], "+")
	return m, published
}

// MemoryOn returns what a member has published on its Lease, and whether it has published anything
// readable.
func MemoryOn(lease election.Observation) (m Memory, published bool) {
	m.Live, m.Beside, published = twoNumbers(lease.Annotations[MemoryAnnotation], "/")
	return m, published
}

// RecentWritesOn returns how many mutating requests the holders of a shard have sent in the last
// hour or so, as published by the last of them; 0 if nothing readable is published.
func RecentWritesOn(lease election.Observation) int64 {
	n := numbers(lease.Annotations[RecentWritesAnnotation], "+")
	if len(n) != 1 {
		return 0
	}
	return min(n[0], shard.MaxCellWeight)
}

func twoNumbers(text, separator string) (a, b int64, ok bool) {
	n := numbers(text, separator)
	if len(n) != 2 {
		return 0, 0, false
	}
	return n[0], n[1], true
}

// numbers returns the numbers in a text, none negative; nil if the text has anything else.
func numbers(text, separator string) []int64 {
	var all []int64
	for part := range strings.SplitSeq(text, separator) {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n < 0 || n > maxMemory {
			return nil
		}
		all = append(all, n)
	}
	return all
}

// Weights are a ring's weights as holders have published them.
type Weights struct {
	// Weights is what the planner plans by: memory and work.
	shard.Weights
	// PerObject is the memory of an average object of the ring, in bytes. If it is 0, for unknown,
	// nothing is carried.
	PerObject float64
	// ByMemory is how much memory counts in Weights, 0 to 1. Work counts for the rest.
	ByMemory float64
	// Fixed is what the carried shards take without any object, by member, in bytes.
	Fixed map[string]int64
	// Whole reports whether the memory of all shards of other rings is known.
	Whole bool

	loads   loads
	carrier func(shard.ID) string
}

// Memory returns the weights by memory alone. If the memory is unknown, they are Weights.
func (w Weights) Memory() shard.Weights {
	if w.PerObject == 0 {
		return w.Weights
	}
	return w.loads.weigh(1, w.carrier)
}

// Bytes returns the memory of that many objects of the ring, by the weights of Memory; 0 if
// unknown.
func (w Weights) Bytes(objects int64) int64 { return int64(float64(objects) * w.PerObject) }

// WeightsOf returns the weights by which the planner plans a ring: what the holders of its shards
// have published on their Leases, and what each member carries besides. It is complete once all
// holders of the ring have published the weight of their namespaces. get returns the Lease of a
// name, or anything without annotations. carrier returns the member that is taken to carry a shard
// of another ring.
//
// Weights are in objects. If all holders of the ring have also published the memory of their
// shards, an object means an average one of the ring, by memory and by work:
//
//   - By memory, a range whose objects are twice as large weighs twice as much, and a group weighs
//     as many objects of the ring as what is cached for it would hold.
//   - By work, a range weighs its objects and its recent writes together, and a group its recent
//     writes.
//
// Memory counts as far as planning can move it: as the cached part of the memory of all shards. So
// it decides in a large cluster, and work decides in a small one, where memory limits nobody.
//
// If some holders, of an older version, have not published the memory, objects are counted and
// groups weigh nothing.
func WeightsOf(fleet string, plan shard.Plan, ring shard.Ring, get func(lease string) election.Observation, carrier func(shard.ID) string) (w Weights, complete bool) {
	l, complete := readLoads(fleet, plan, ring, get)
	if !l.known {
		for _, p := range l.ranges {
			w.Census = append(w.Census, p.census...)
		}
		w.Census = shard.Merge(w.Census)
		return w, complete
	}
	w.PerObject, w.Whole = float64(l.cached)/float64(l.objects), l.whole
	w.ByMemory = float64(l.all.Cached) / float64(l.all.Total())
	w.loads, w.carrier = l, carrier
	w.Weights = l.weigh(w.ByMemory, carrier)
	w.Fixed = map[string]int64{}
	for _, one := range l.others {
		w.Fixed[carrier(one.id)] += one.memory.Fixed
	}
	return w, complete
}

// load is what the Lease of a shard says about its weight.
type load struct {
	id       shard.ID
	census   shard.Census
	memory   ShardMemory
	measured bool // whether memory is known
	writes   int64
}

// loads are those of all shards.
type loads struct {
	// ranges are those of the ring, others those of the other rings.
	ranges, others []load
	// objects, cached and writes are sums over the ranges, all is one over everything.
	objects, cached, writes int64
	all                     ShardMemory
	// known reports whether the memory of all ranges is known and there is some, whole whether that
	// of the others is.
	known, whole bool
}

func readLoads(fleet string, plan shard.Plan, ring shard.Ring, get func(lease string) election.Observation) (l loads, complete bool) {
	complete, l.known, l.whole = true, true, true
	for _, r := range plan.Rings {
		for _, s := range r.Shards {
			lease := get(ShardLease(fleet, s.ID))
			memory, measured := ShardMemoryOn(lease)
			one := load{id: s.ID, memory: memory, measured: measured, writes: RecentWritesOn(lease)}
			l.all.Cached += memory.Cached
			l.all.Fixed += memory.Fixed
			if r.Name != ring.Name {
				l.others, l.whole = append(l.others, one), l.whole && measured
				continue
			}
			census, counted := CensusOn(lease)
			one.census = census.Within(s.Range)
			l.ranges = append(l.ranges, one)
			complete, l.known = complete && counted, l.known && measured
			l.objects += one.census.Total()
			l.cached += memory.Cached
			l.writes += one.writes
		}
	}
	l.known = l.known && l.objects > 0 && l.cached > 0
	return l, complete
}

// weigh returns the weights if memory counts for the part byMemory, and work for the rest.
func (l loads) weigh(byMemory float64, carrier func(shard.ID) string) shard.Weights {
	perByte := byMemory * float64(l.objects) / float64(l.cached)
	perWork := (1 - byMemory) * float64(l.objects) / float64(l.objects+l.writes)
	w := shard.Weights{Groups: map[shard.ID]int64{}, Carried: map[string]int64{}}
	for _, one := range l.ranges {
		if total := one.census.Total(); total > 0 {
			weight := perByte*float64(one.memory.Cached) + perWork*float64(total+one.writes)
			w.Census = append(w.Census, scaled(one.census, weight/float64(total))...)
		}
	}
	w.Census = shard.Merge(w.Census)
	carried := map[string]float64{}
	for _, one := range l.others {
		if !one.measured {
			continue
		}
		weight := perByte*float64(one.memory.Cached) + perWork*float64(one.writes)
		w.Groups[one.id] = rounded(weight)
		if member := carrier(one.id); member != "" {
			carried[member] += weight
		}
	}
	for member, weight := range carried {
		w.Carried[member] = rounded(weight)
	}
	return w
}

// rounded returns a weight as the planner takes it.
func rounded(weight float64) int64 {
	return int64(min(math.Round(weight), float64(shard.MaxCellWeight)))
}

// scaled returns the census with its weights multiplied by factor. An absurd factor on a Lease is
// clamped.
func scaled(c shard.Census, factor float64) shard.Census {
	const most = 1000
	factor = min(max(factor, 1.0/most), most)
	out := make(shard.Census, 0, len(c))
	for _, cell := range c {
		cell.Weight = rounded(float64(cell.Weight) * factor)
		out = append(out, cell)
	}
	return out
}
