package leaseapi

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// noNamespaces is the census of a shard without namespaces, on its Lease: an empty annotation would
// be none at all.
const noNamespaces = "none"

// CensusText returns the census of a shard as it stands on its Lease.
func CensusText(census shard.Census) string {
	if len(census) == 0 {
		return noNamespaces
	}
	return census.String()
}

// CensusOn returns what the shard's holder has published on its Lease, and whether it has published
// anything that can be read.
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

// ShardMemory is an estimate of what a shard takes of its holder's memory, in bytes, 0 or more
// each.
type ShardMemory struct {
	// Cached is what is cached for it, Fixed what it takes without any object.
	Cached, Fixed int64
}

// Total returns the bytes of both.
func (m ShardMemory) Total() int64 { return m.Cached + m.Fixed }

// String returns the two numbers with a plus sign between them, as on a Lease.
func (m ShardMemory) String() string { return fmt.Sprintf("%d+%d", m.Cached, m.Fixed) }

// Memory is what a member says of its memory, in bytes, 0 or more each.
type Memory struct {
	// Live is the heap that is really in use, Beside an estimate of what of it belongs to no shard:
	// the process itself, and what ranges share.
	Live, Beside int64
}

// String returns the two numbers with a slash between them, as on a Lease.
func (m Memory) String() string { return fmt.Sprintf("%d/%d", m.Live, m.Beside) }

// ShardMemoryOn returns what a holder has published on the Lease of its shard, and whether anybody
// has published anything that can be read.
func ShardMemoryOn(lease election.Observation) (m ShardMemory, published bool) {
	m.Cached, m.Fixed, published = twoNumbers(lease.Annotations[MemoryAnnotation], "+")
	return m, published
}

// MemoryOn returns what a member has published on its Lease, and whether it has published anything
// that can be read.
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

// numbers returns the numbers of a text, none negative; nil if anything else is in it.
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

// WeightsOf returns what the planner goes by for a ring: what the holders of its shards have
// published on their Leases, and what each member carries beside. It is complete once all holders
// of the ring have said what their namespaces weigh. get returns the Lease of a name, or anything
// without annotations; carrier returns the member that is taken to have a shard of another ring.
//
// Weights are in objects. Where all holders of the ring have also said what their shards take of
// the memory, an object is a mean one of the ring: a range whose objects are twice as large weighs
// twice as much, and a group as much as so many objects of the ring would take. Where some have
// not, being of an older version, objects are counted, and groups weigh nothing.
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

// Weights are those of a ring as holders have published them.
type Weights struct {
	shard.Weights
	// PerObject is what a mean object of the ring takes, in bytes; 0 if that is not known, and then
	// nothing is carried.
	PerObject float64
	// Whole reports whether it is known of all shards of other rings what they take.
	Whole bool
}

// Bytes returns what so many objects of the ring take; 0 if that is not known.
func (w Weights) Bytes(objects int64) int64 { return int64(float64(objects) * w.PerObject) }

// scaled returns the census with its weights times the factor. A factor that is out of all
// proportion is nonsense on a Lease, and cut short.
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

// weighOthers finds out what the other rings' shards weigh, and what each member carries of them.
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
