package shard

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// groupFleet has members that come and go, and a ring of groups that they hold.
type groupFleet struct {
	t       *testing.T
	random  *rand.Rand
	plan    Plan
	known   []string
	newest  []string // The members that are there.
	holders map[ID]string
	moves   map[ID]int
}

func newGroupFleet(t *testing.T, random *rand.Rand, groups ...string) *groupFleet {
	return &groupFleet{t: t, random: random, plan: groupsPlan(groups...), holders: map[ID]string{}, moves: map[ID]int{}}
}

func (c *groupFleet) ring() Ring { return c.plan.Rings[0] }

func (c *groupFleet) comes(name string) {
	c.newest = append([]string{name}, c.newest...)
	c.known = sortedUnique(append(c.known, name), strings.Compare)
}

func (c *groupFleet) goes(name string) {
	c.newest = slices.DeleteFunc(slices.Clone(c.newest), func(m string) bool { return m == name })
}

func (c *groupFleet) homes() Placement {
	homes, err := c.plan.HomesOf("cluster", c.known)
	checkError(c.t, err)
	return homes
}

func (c *groupFleet) settle(homes Placement) Placement {
	members := slices.Clone(c.newest)
	c.random.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return c.plan.SettleRing("cluster", members, homes, c.holders, c.newest, nil)
}

// carryOut moves one group after the other, in random order, and requires that the placement does
// not change meanwhile. A group that leaves a member has no holder for a while.
func (c *groupFleet) carryOut() {
	c.t.Helper()
	homes := c.homes()
	want := c.settle(homes)
	for {
		if now := c.settle(homes); now.Digest() != want.Digest() {
			c.t.Fatalf("the placement changed while it was carried out: %v, was %v", now.owners, want.owners)
		}
		var left []ID
		for id, owner := range want.owners {
			if c.holders[id] != owner {
				left = append(left, id)
			}
		}
		if len(left) == 0 {
			return
		}
		slices.SortFunc(left, ID.Compare)
		id := left[c.random.IntN(len(left))]
		switch c.holders[id] {
		case "":
			c.holders[id] = want.owners[id]
		default:
			delete(c.holders, id)
			c.moves[id]++
		}
	}
}

func (c *groupFleet) bound() []ID {
	return slices.DeleteFunc(c.ring().IDs(), func(id ID) bool { return !c.ring().Stays(id) })
}

// TestBoundGroupsStay has members come and go at random. Groups that are bound to each other must
// stay together, and leave a member only if it leaves, or for a pin.
func TestBoundGroupsStay(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 3))
		c := newGroupFleet(t, random, "nodes", "volumes:nodes", "garbage:nodes", "policy", "certificates")
		if len(c.bound()) != 3 {
			t.Fatalf("%v are bound, want nodes, volumes and garbage", c.bound())
		}
		pinned := false
		for range 40 {
			before, wasPinned := maps.Clone(c.holders), pinned
			name := fmt.Sprintf("flotilla-%d", random.IntN(6))
			there := slices.Contains(c.newest, name)
			switch n := random.IntN(8); {
			case n == 0: // An operator pins a group, or removes the pin.
				i := random.IntN(3)
				plan := c.plan
				plan.Rings = slices.Clone(plan.Rings)
				plan.Rings[0].Shards = slices.Clone(plan.Rings[0].Shards)
				plan.Rings[0].Shards[i].Pin = [...]string{"", name}[random.IntN(2)]
				c.plan, pinned = plan, true
			case !there:
				c.comes(name)
			case len(c.newest) > 1:
				c.goes(name)
			}
			if len(c.newest) == 0 {
				continue
			}
			c.carryOut()
			for _, id := range c.bound() {
				now, s := c.holders[id], c.ring().Shards[slices.IndexFunc(c.ring().Shards, func(s Shard) bool { return s.ID == id })]
				anchor := c.ring().Shards[0]
				forPin := now == s.Pin || now == anchor.Pin
				if was := before[id]; was != "" && was != now && slices.Contains(c.newest, was) && !forPin {
					t.Fatalf("seed %d: %s went from %s to %s, although %s is there", seed, id, was, now, was)
				}
				if slices.Contains(c.newest, s.Pin) && now != s.Pin {
					t.Fatalf("seed %d: %s is on %s, but pinned to %s, which is there", seed, id, now, s.Pin)
				}
				if !pinned && !wasPinned && now != c.holders[anchor.ID] {
					t.Fatalf("seed %d: %s is on %s, but %s on %s", seed, id, now, anchor.ID, c.holders[anchor.ID])
				}
			}
		}
	}
}

// TestBoundGroupsInARollingRestart restarts every member, the highest first, as a StatefulSet does.
func TestBoundGroupsInARollingRestart(t *testing.T) {
	for _, size := range []int{2, 3, 5, 10} {
		for seed := range uint64(15) {
			c := newGroupFleet(t, rand.New(rand.NewPCG(seed, 4)), "nodes", "volumes:nodes", "garbage:nodes", "policy", "certificates")
			for _, i := range c.random.Perm(size) {
				c.comes(fmt.Sprintf("flotilla-%d", i))
				c.carryOut()
			}
			if c.moves[ID{"cluster", "nodes"}] > 0 {
				t.Fatalf("%d members, seed %d: nodes moved when members came: %v", size, seed, c.moves)
			}
			c.moves = map[ID]int{}
			for i := size - 1; i >= 0; i-- {
				name := fmt.Sprintf("flotilla-%d", i)
				c.goes(name)
				c.carryOut()
				c.comes(name)
				c.carryOut()
			}
			for _, id := range c.bound() {
				if c.moves[id] < 1 || c.moves[id] > 2 {
					t.Errorf("%d members, seed %d: %s made %d moves in one rolling restart, want 1 or 2", size, seed, id, c.moves[id])
				}
			}
		}
	}
}

// Without bound groups, SettleRing equals Settle.
func TestSettleRingWithoutBoundGroups(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 5))
		c := newGroupFleet(t, random, "a", "b", "c", "d", "e", "f")
		for i := range 5 {
			c.comes(fmt.Sprintf("flotilla-%d", i))
		}
		c.goes(fmt.Sprintf("flotilla-%d", random.IntN(5)))
		for _, id := range c.ring().IDs() {
			c.holders[id] = c.known[random.IntN(len(c.known))]
		}
		homes := c.homes()
		if got, want := c.settle(homes), Settle(c.ring().IDs(), c.newest, homes, c.holders); got.Digest() != want.Digest() {
			t.Errorf("seed %d: %v, want %v", seed, got.owners, want.owners)
		}
	}
	if p := groupsPlan("nodes", "volumes:nodes").SettleRing("cluster", nil, Placement{}, nil, nil, nil); p.Len() != 0 {
		t.Errorf("%d groups were placed without members", p.Len())
	}
}
