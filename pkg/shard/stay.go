package shard

import (
	"cmp"
	"maps"
	"slices"
)

// SettleRing decides which member should own which shard of the ring, as Settle does, but by weight
// and with exceptions for groups with ColocateWith.
//
// While a member is away, its shards are dealt out so that what each of the others carries stays
// even: by the weights that the planner has written into the plan, with what members carry in
// addition to the ring, in objects. If fewer than half of the ring's shards have a weight, shards
// are counted. Weights come from the plan alone, so all members use the same ones, and they do not
// change while shards move. A shard whose home is among the members goes there, whoever holds it;
// of the others each member keeps what it has as far as its load is even.
//
// Groups that are bound to each other by ColocateWith read the most, and have the most in memory,
// so they stay where they are held. A bound group leaves its member only
//
//   - for its pin, or that of the group that it goes with, while that is among the members;
//   - when its holder is not among the members any more. It goes then to its home if that is there,
//     else to the groups that it is bound to, else to the first of newest that is among the
//     members.
//
// Neither count nor a member that comes back moves it. newest are members that are there, the
// latest first: in a rolling restart one that has been restarted already.
//
// Like Settle it is a pure function, and stable while moves are carried out. The others are placed
// with regard to where the bound groups are.
func (p Plan) SettleRing(ring string, members []string, home Placement, holders map[ID]string, newest []string, beside map[string]int64) Placement {
	r, _ := p.Ring(ring)
	members = sortedUnique(members, cmp.Compare[string])
	seats := r.seats(members, holders, newest)
	if len(seats) == 0 || len(members) == 0 {
		return r.settle(members, home, holders, beside)
	}
	// Settle sees them as being at home already.
	holders, owners := maps.Clone(holders), maps.Clone(home.owners)
	if holders == nil {
		holders = map[ID]string{}
	}
	if owners == nil {
		owners = map[ID]string{}
	}
	maps.Copy(holders, seats)
	maps.Copy(owners, seats)
	return r.settle(members, placementOf(owners), holders, beside)
}

// settle is Settle, by weight where the plan has weights. Members are sorted.
func (r Ring) settle(members []string, home Placement, holders map[ID]string, beside map[string]int64) Placement {
	weight := r.weigher()
	ids := sortedUnique(r.IDs(), ID.Compare)
	if weight == nil || len(members) == 0 || home.among(ids, members) {
		return Settle(ids, members, home, holders)
	}
	return settleByWeight(ids, members, home, holders, weight, beside)
}

func placementOf(owners map[ID]string) Placement {
	p := Placement{owners: owners, shards: map[string][]ID{}}
	for id, owner := range owners {
		p.shards[owner] = append(p.shards[owner], id)
	}
	for _, ids := range p.shards {
		slices.SortFunc(ids, ID.Compare)
	}
	return p
}

// Stays reports whether the shard is a group that is bound to another of the ring by ColocateWith,
// and so stays where it is held; see Plan.SettleRing.
func (r Ring) Stays(id ID) bool {
	i := slices.IndexFunc(r.Shards, func(s Shard) bool { return s.ID == id })
	return i >= 0 && slices.ContainsFunc(r.Shards, func(s Shard) bool {
		return s.colocatesWith(r.Shards[i]) || r.Shards[i].colocatesWith(s)
	})
}

// seats returns the members for those of the ring's groups that are bound to each other by
// ColocateWith.
func (r Ring) seats(members []string, holders map[ID]string, newest []string) map[ID]string {
	seats := map[ID]string{}
	if !slices.ContainsFunc(r.Shards, func(s Shard) bool { return s.ColocateWith != "" }) {
		return seats // as in every ring of ranges: a thousand of them are a million pairs
	}
	for _, anchor := range r.Shards {
		var beside []Shard
		for _, s := range r.Shards {
			if s.colocatesWith(anchor) {
				beside = append(beside, s)
			}
		}
		if len(beside) == 0 || len(members) == 0 {
			continue
		}
		slices.SortFunc(beside, func(a, b Shard) int { return a.Compare(b.ID) })
		seat := anchor.seat(members, holders)
		for _, s := range beside {
			if seat == "" && s.homeAmong(members) == "" {
				seat = s.seat(members, holders)
			}
		}
		if seat == "" {
			seat = newcomer(anchor.ID, members, newest)
		}
		seats[anchor.ID] = seat
		for _, s := range beside {
			if seats[s.ID] = s.seat(members, holders); s.homeAmong(members) == "" && (seats[s.ID] == "" || contains(members, anchor.Pin)) {
				seats[s.ID] = seat
			}
		}
	}
	return seats
}

// seat returns the member that the group stays with or goes to by itself: none if other groups
// decide.
func (s Shard) seat(members []string, holders map[ID]string) string {
	for _, name := range []string{s.Pin, holders[s.ID], s.Home} {
		if name != "" && contains(members, name) {
			return name
		}
	}
	return ""
}

// newcomer returns the first of newest that is among the members, or any member.
func newcomer(id ID, members, newest []string) string {
	for _, name := range newest {
		if contains(members, name) {
			return name
		}
	}
	return slices.MaxFunc(members, func(a, b string) int { return cmp.Compare(affinity(id, a), affinity(id, b)) })
}
