package shard

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Names of the rings of a fleet's first plan: the ranges, and the groups.
const (
	NamespacesRing = "namespaces"
	ClusterRing    = "cluster"
)

// Scope says what one controller of a ring decides over.
type Scope string

const (
	// ScopeNamespaced is the scope of rings whose shards are ranges: everything that one reconcile
	// reads and writes lies in one namespace, apart from cluster-scoped objects that it only reads.
	ScopeNamespaced Scope = "namespaced"
	// ScopeCluster is the scope of rings whose shards are groups of controllers that decide over
	// cluster-scoped objects or all namespaces at once.
	ScopeCluster Scope = "cluster"
)

// Ring is a named set of shards and the controllers that run in them. One call of Place with its
// IDs places its shards on members.
type Ring struct {
	// Name is the name of the ring, under the rules of ID.Ring.
	Name string `json:"name"`
	// Scope is the scope of the ring's controllers.
	Scope Scope `json:"scope"`
	// Controllers are the upstream names of the controllers that every shard of a namespaced ring
	// runs, sorted, at least one. It is empty in a cluster ring, where each shard has its own.
	Controllers []string `json:"controllers,omitempty"`
	// Isolate names namespaces that an operator wants alone in a shard: the range of that shard is
	// their one hash.
	Isolate []string `json:"isolate,omitempty"`
	// Shards are the ring's shards, at least one, in any order. Those of a namespaced ring cover
	// the keyspace without gap or overlap.
	Shards []Shard `json:"shards"`
}

// IDs returns the IDs of the ring's shards, sorted.
func (r Ring) IDs() []ID {
	ids := make([]ID, 0, len(r.Shards))
	for _, s := range r.Shards {
		ids = append(ids, s.ID)
	}
	slices.SortFunc(ids, ID.Compare)
	return ids
}

const (
	// pointsPerMember is how many points each member has on the circle. With fewer, more shards
	// move between members that stay; the time of Place is proportional to it.
	pointsPerMember = 100
	// loadFactor is how far above the mean a member may be, before rounding up; see MaxLoad. The
	// nearer to 1, the more shards move between members that stay.
	loadFactor = 1.10
)

// Placement says which member should own each shard of one ring. It is immutable. The zero value
// places nothing.
type Placement struct {
	owners map[ID]string
	shards map[string][]ID // sorted
}

// MaxLoad returns the maximum number of shards that Place gives one member: shards/members*1.10
// rounded up, computed in float64. The bound is tight: there are rosters that reach it. It is 0 if
// there are no shards or no members, 1 if there are a tenth more members than shards or more, and 5
// at four shards a member.
func MaxLoad(shards, members int) int {
	if shards < 1 || members < 1 {
		return 0
	}
	return int(math.Ceil(float64(shards) / float64(members) * loadFactor))
}

// Place decides which member should own which shard. Call it once for each ring, with that ring's
// IDs and the members that take part in the ring; the load bound holds for the shards of one call.
//
// It is a pure function of the two sets: neither order nor repetition matters. Without shards or
// without members the placement is empty. It returns an error for more than MaxShards shards, an
// invalid ID, or a member whose name is empty or has a line feed; it never panics.
//
// It is consistent hashing with bounded loads, by buraksezer/consistent and xxhash, on a ring that
// is drawn from the sorted members, with one partition for each shard. A shard's point on the
// circle is the hash of its ID, not of its index among the shards. So the shards that a new plan
// generation keeps under their IDs stay where they are, except for those that the load bound pushes
// on: when one of 12 to 256 shards was split in two, on average 0.6 to 2.3 others moved; by index
// it would have been 30 to 50 % of them.
//
// Measured with pod-like member names, at 4 and 8 shards a member, 3 to 32 members, 40 to 60
// rosters each: adding or removing a member moves on average 1.1 to 1.9 times the least possible (6
// of 128 shards, 13 of 256), and at worst 13 of 128 and 24 of 256. Members without any shard: none
// at 8 shards a member, about 1 in 100 at 4, 1 in 10 at 2, and 3 in 10 at one. The time grows with
// the square of the members, since the library sorts after each: on one core 1 ms for 10 members, 8
// ms for 40, 0.5 s for 256. Circles avoids most of it.
func Place(shards []ID, members []string) (Placement, error) {
	return (*Circles)(nil).place(shards, members)
}

// place is Place, with the kept circles.
func (cs *Circles) place(shards []ID, members []string) (Placement, error) {
	for _, id := range shards {
		if err := id.validate(); err != nil {
			return Placement{}, fmt.Errorf("shard %q: %w", id, err)
		}
	}
	for _, m := range members {
		if m == "" || strings.Contains(m, "\n") {
			return Placement{}, fmt.Errorf("member %q: must not be empty or contain a line feed", m)
		}
	}
	return place(shards, members, loadFactor, xxhash.Sum64, cs)
}

// place is Place for valid names, with the kept circles.
func place(shards []ID, members []string, load float64, sum func([]byte) uint64, kept *Circles) (Placement, error) {
	shards = sortedUnique(shards, ID.Compare)
	// Where points of two members collide, the last one given has the point.
	members = sortedUnique(members, strings.Compare)
	if len(shards) > MaxShards {
		return Placement{}, fmt.Errorf("number of shards %d: must be at most %d", len(shards), MaxShards)
	}
	if len(shards) == 0 || len(members) == 0 {
		return Placement{}, nil
	}
	c := kept.take(shards, members)
	if c == nil {
		var err error
		if c, err = drawCircle(shards, members, load, sum); err != nil {
			return Placement{}, err
		}
	}
	p := c.placement()
	kept.keep(c)
	return p, nil
}

// Owner returns the member that should own the shard, and whether the shard was placed.
func (p Placement) Owner(id ID) (member string, placed bool) {
	member, placed = p.owners[id]
	return member, placed
}

// Of returns the IDs of the shards that the member should own, sorted. The caller may change the
// result.
func (p Placement) Of(member string) []ID { return slices.Clone(p.shards[member]) }

// Len returns the number of shards placed.
func (p Placement) Len() int { return len(p.owners) }

// Digest returns 16 hexadecimal digits, the xxhash of the sorted lines "ring/name=member". Members
// that agree on a placement show the same digest, and different placements have different ones, as
// far as 64 bits can distinguish. As a float64 it would lose digits: export it as a label or cut it
// to 52 bits.
func (p Placement) Digest() string {
	lines := make([]string, 0, len(p.owners))
	for id, member := range p.owners {
		lines = append(lines, id.String()+"="+member+"\n")
	}
	return digest(lines)
}

func sortedUnique[T comparable](in []T, compare func(a, b T) int) []T {
	out := slices.Clone(in)
	slices.SortFunc(out, compare)
	return slices.Compact(out)
}

// memberName is a member in the form that the library needs.
type memberName string

func (m memberName) String() string { return string(m) }

// hasher hashes for the library. It hashes a member's point by its key, but the i-th partition,
// whose key is i as eight bytes, little-endian, by the ID of the i-th shard. No key of a member's
// point looks like a partition's: it begins with a number and a colon, which as an integer is
// beyond MaxShards.
type hasher struct {
	shards []uint64
	sum    func([]byte) uint64
}

func newHasher(shards []ID, sum func([]byte) uint64) hasher {
	h := hasher{shards: make([]uint64, 0, len(shards)), sum: sum}
	for _, id := range shards {
		h.shards = append(h.shards, sum([]byte(id.String())))
	}
	return h
}

// hash returns the hash of a key, and whether the key is a member's.
func (h hasher) hash(key []byte) (sum uint64, isMember bool) {
	if len(key) == 8 {
		if i := binary.LittleEndian.Uint64(key); i < uint64(len(h.shards)) {
			return h.shards[i], false
		}
	}
	return h.sum(key), true
}
