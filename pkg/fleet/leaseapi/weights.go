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

// WeightsOf returns the weights by which the planner plans a ring: what the holders of its shards
// have published on their Leases, and what each member carries besides. It is complete once all
// holders of the ring have published the weight of their namespaces. get returns the Lease of a
// name, or anything without annotations. carrier returns the member that is taken to carry a shard
// of another ring.
//
// Weights are in objects. If all holders of the ring have also published the memory of their
// shards, an object means an average one of the ring. A range whose objects are twice as large
// weighs twice as much, and a group weighs as many objects of the ring as its memory would hold. If
// some holders, of an older version, have not, objects are counted and groups weigh nothing.
func WeightsOf(fleet string, plan shard.Plan, ring shard.Ring, get func(lease string) election.Observation, carrier func(shard.ID) string) (w Weights, complete bool) {
	type weighed struct {
		census shard.Census
		memory ShardMemory
	}
	var parts []weighed
	objects, bytes, known := int64(0), int64(0), true
	complete = true
	for _, s := range ring.Shards {
		lease := get(ShardLease(fleet, s.ID))
		census, published := CensusOn(lease)
		memory, measured := ShardMemoryOn(lease)
		complete, known = complete && published, known && measured
		p := weighed{census.Within(s.Range), memory}
		parts = append(parts, p)
		objects, bytes = objects+p.census.Total(), bytes+memory.Cached
	}
	var censuses []shard.Census
	w.PerObject = float64(bytes) / float64(objects)
	if known = known && objects > 0 && bytes > 0; !known {
		w.PerObject = 0
	}
	for _, p := range parts {
		if total := p.census.Total(); known && total > 0 {
			p.census = scaled(p.census, float64(p.memory.Cached)/w.PerObject/float64(total))
		}
		censuses = append(censuses, p.census)
	}
	w.Census = shard.Merge(censuses...)
	if known {
		w.weighOthers(fleet, plan, ring, get, carrier)
	}
	return w, complete
}

// Weights are a ring's weights as holders have published them.
type Weights struct {
	shard.Weights
	// PerObject is the memory of an average object of the ring, in bytes. If it is 0, for unknown,
	// nothing is carried.
	PerObject float64
	// Whole reports whether the memory of all shards of other rings is known.
	Whole bool
}

// Bytes returns the memory of that many objects of the ring; 0 if unknown.
func (w Weights) Bytes(objects int64) int64 { return int64(float64(objects) * w.PerObject) }

// scaled returns the census with its weights multiplied by factor. An absurd factor on a Lease is
// clamped.
func scaled(c shard.Census, factor float64) shard.Census {
	const most = 100
	factor = min(max(factor, 1.0/most), most)
	out := make(shard.Census, 0, len(c))
	for _, cell := range c {
		cell.Weight = min(int64(math.Round(float64(cell.Weight)*factor)), shard.MaxCellWeight)
		out = append(out, cell)
	}
	return out
}

// weighOthers sets the weight of the other rings' shards, and what each member carries of them.
func (w *Weights) weighOthers(
	fleet string, plan shard.Plan, ring shard.Ring, get func(lease string) election.Observation, carrier func(shard.ID) string,
) {
	objects := func(bytes int64) int64 {
		return int64(min(math.Round(float64(bytes)/w.PerObject), float64(shard.MaxCellWeight)))
	}
	bytes := map[string]int64{}
	w.Whole, w.Groups, w.Carried = true, map[shard.ID]int64{}, map[string]int64{}
	for _, other := range plan.Rings {
		if other.Name == ring.Name {
			continue
		}
		for _, s := range other.Shards {
			memory, published := ShardMemoryOn(get(ShardLease(fleet, s.ID)))
			if w.Whole = w.Whole && published; published {
				w.Groups[s.ID] = objects(memory.Total())
			}
			if member := carrier(s.ID); member != "" {
				bytes[member] += memory.Total()
			}
		}
	}
	for member, n := range bytes {
		w.Carried[member] = objects(n)
	}
}
