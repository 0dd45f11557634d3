package status

import (
	"maps"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// versions looks for members whose version lacks something in the plan: docs/design/skew.md.
func (f *finder) versions() {
	r := f.r
	lacks, shards := map[string][]string{}, map[string][]string{}
	for _, s := range r.Plan.Shards() {
		o := r.ShardLease(s.ID)
		if text := o.Annotations[leaseapi.LacksAnnotation]; text != "" && r.IsHeld(o) {
			member := leaserecord.MemberOf(o.Holder)
			lacks[member] = append(lacks[member], strings.Split(text, ",")...)
			shards[member] = append(shards[member], s.ID.String())
		}
	}
	for _, m := range r.Roster.Members() {
		known, says := leaseapi.KnownOf(m)
		for _, ring := range r.Plan.Rings {
			if says && !known.Apt(ring) && len(leaseapi.ServersOf([]membership.Member{m}, ring.Name)) > 0 {
				f.add(Warning, MemberUnfit, AboutMember, m.Name, nil, "member %s gets no shards of ring %s: its version, %s, can run some of the ring's controllers only in another scope; the planner moves them",
					m.Name, ring.Name, Plain(known.Version))
			}
		}
	}
	for _, member := range slices.Sorted(maps.Keys(lacks)) {
		version := "its version"
		if m, live := r.Roster.Get(member); live {
			if known, says := leaseapi.KnownOf(m); says {
				version = "its version, " + Plain(known.Version) + ","
			}
		}
		names := slices.Compact(slices.Sorted(slices.Values(lacks[member])))
		f.add(Warning, ControllersLacking, AboutMember, member, nil, "member %s runs %d shards without %s: %s does not have what the plan has there, because a member of another version does or did",
			member, len(shards[member]), Plain(strings.Join(names, ", ")), version)
	}
}
