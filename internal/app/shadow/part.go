package shadow

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/flotilla-kube/flotilla/pkg/fleet/assignment"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// MaxMembers bounds the fleet that a shadow imagines.
const MaxMembers = 256

// Part says which member of how many a shadow stands for. The zero Part is no shadow. It is a
// pflag.Value.
type Part struct {
	// Index counts from 1.
	Index, Members int
}

// Whole is the Part of a fleet of one.
const Whole = "1/1"

// Enabled reports whether the process is a shadow.
func (p *Part) Enabled() bool { return p.Members > 0 }

// String implements pflag.Value.
func (p *Part) String() string {
	if !p.Enabled() {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.Index, p.Members)
}

// Type implements pflag.Value.
func (p *Part) Type() string { return "K/N" }

// Set implements pflag.Value.
func (p *Part) Set(text string) error {
	first, second, _ := strings.Cut(text, "/")
	index, err := strconv.Atoi(first)
	members, err2 := strconv.Atoi(second)
	if err != nil || err2 != nil || index < 1 || index > members || members > MaxMembers {
		return fmt.Errorf("must be K/N, member K of N, with 1 <= K <= N <= %d, such as 1/4", MaxMembers)
	}
	*p = Part{index, members}
	return nil
}

// names are the names of the imagined members: those of the pods in the manifests' StatefulSet.
func (p *Part) names(fleetName string) []string {
	names := make([]string, 0, p.Members)
	for i := range p.Members {
		names = append(names, fmt.Sprintf("%s-%d", fleetName, i))
	}
	return names
}

// Assignment is a shard that a shadow has, and how to build it.
type Assignment struct {
	Shard       shard.Shard
	Controllers []string
	// Share and Shards are as in fleet.Work.
	Share, Shards int
}

// Assign returns what the member would own if a fleet of that many members started now, under the
// plan, and nobody held anything; of these rings only, all if none are given.
func (p *Part) Assign(fleetName string, plan shard.Plan, rings []string) ([]Assignment, error) {
	names := p.names(fleetName)
	wanted, err := assignment.Afresh(fleetName, plan, names)
	if err != nil {
		return nil, err
	}
	var all []Assignment
	for _, ring := range plan.Rings {
		if len(rings) > 0 && !slices.Contains(rings, ring.Name) {
			continue
		}
		for _, s := range ring.Shards {
			if wanted.Owner(s.ID) != names[p.Index-1] {
				continue
			}
			a := Assignment{Shard: s, Controllers: plan.ControllersOf(s.ID), Share: 1, Shards: len(ring.Shards)}
			if s.Namespaced() {
				a.Share = wanted.Share(ring.Name, len(ring.Shards))
			}
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b Assignment) int { return a.Shard.ID.Compare(b.Shard.ID) })
	return all, nil
}
