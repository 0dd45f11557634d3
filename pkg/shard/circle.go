package shard

import (
	"fmt"
	"slices"

	"github.com/buraksezer/consistent"
)

// circle is a ring of the consistent-hashing library, with what is on it.
type circle struct {
	shards  []ID     // sorted
	members []string // sorted
	ring    *consistent.Consistent
	points  *points
}

// drawCircle puts members and shards, both sorted, on a circle. Tests pass other loads and hashes
// to force collisions and panics.
func drawCircle(shards []ID, members []string, load float64, sum func([]byte) uint64) (c *circle, err error) {
	defer recovered(shards, members, &err)
	onCircle := make([]consistent.Member, 0, len(members))
	for _, m := range members {
		onCircle = append(onCircle, memberName(m))
	}
	c = &circle{
		shards: shards, members: members,
		points: &points{hasher: newHasher(shards, sum), adding: true, taken: map[uint64]bool{}},
	}
	c.ring = consistent.New(onCircle, consistent.Config{
		Hasher:            c.points,
		PartitionCount:    len(shards),
		ReplicationFactor: pointsPerMember,
		Load:              load,
	})
	return c, nil
}

// recovered turns a panic of the library into an error: the library panics if it finds no room for
// a partition. With a load of 1 or more there always is room: members*ceil(shards/members*load) is
// at least the number of shards, even if there are more members than shards, so the partitions need
// no padding. The remaining cause is a member that lost all of its points to others by collisions.
func recovered(shards []ID, members []string, err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("placing %d shards on %d members: %v", len(shards), len(members), r)
	}
}

// become changes the circle to another roster, sorted and not empty.
func (c *circle) become(members []string) (err error) {
	defer recovered(c.shards, members, &err)
	c.points.adding = true
	for _, m := range without(members, c.members) {
		c.ring.Add(memberName(m))
	}
	c.points.adding = false
	for _, m := range without(c.members, members) {
		c.ring.Remove(m)
	}
	c.members = members
	return nil
}

// placement returns who owns what on the circle.
func (c *circle) placement() Placement {
	p := Placement{owners: make(map[ID]string, len(c.shards)), shards: make(map[string][]ID, len(c.members))}
	for i, id := range c.shards {
		owner := c.ring.GetPartitionOwner(i).String()
		p.owners[id] = owner
		p.shards[owner] = append(p.shards[owner], id)
	}
	return p
}

// without returns the sorted names that are not among the sorted others.
func without(names, others []string) (left []string) {
	for _, name := range names {
		if _, found := slices.BinarySearch(others, name); !found {
			left = append(left, name)
		}
	}
	return left
}

// points hashes for a circle, and notices when points of two members collide: then the circle
// depends on the order in which they came.
type points struct {
	hasher
	adding, collided bool
	taken            map[uint64]bool
}

// Sum64 implements consistent.Hasher.
func (p *points) Sum64(key []byte) uint64 {
	sum, isMember := p.hash(key)
	switch {
	case !isMember:
	case p.adding:
		p.collided = p.collided || p.taken[sum]
		p.taken[sum] = true
	default:
		delete(p.taken, sum)
	}
	return sum
}

// Circles keeps the rings that were drawn last, to change one into the next by the members that
// have come and gone since. The library sorts all points after each member that it is given, so
// drawing a ring of a hundred members from nothing costs a hundred sorts, and adding or removing
// one member costs one. Placements do not depend on what is kept. The zero value is ready to use,
// and nil keeps nothing. It is not safe for concurrent use.
type Circles struct {
	last []*circle // the latest first
}

// keptCircles is enough for the rings of a plan and of the next one.
const keptCircles = 8

// stepCost is how many members a new circle can be drawn with in the time that it takes to add or
// remove one: after each such step the library deals out all shards again.
const stepCost = 3

// take returns a circle with these shards and members, made from a kept one, or nil if none will
// do. It belongs to the caller until it is given to keep.
func (cs *Circles) take(shards []ID, members []string) *circle {
	if cs == nil {
		return nil
	}
	i := slices.IndexFunc(cs.last, func(c *circle) bool {
		steps := len(without(members, c.members)) + len(without(c.members, members))
		return stepCost*(steps-1) < len(members) && slices.Equal(c.shards, shards)
	})
	if i < 0 {
		return nil
	}
	c := cs.last[i]
	cs.last = slices.Delete(cs.last, i, i+1)
	if err := c.become(members); err != nil || c.points.collided {
		return nil
	}
	return c
}

// keep keeps the circle for take, unless it depends on the order in which its members came.
func (cs *Circles) keep(c *circle) {
	if cs == nil || c.points.collided {
		return
	}
	cs.last = slices.Insert(cs.last, 0, c)
	cs.last = cs.last[:min(len(cs.last), keptCircles)]
}
