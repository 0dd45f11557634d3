package main

import (
	"fmt"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// shardsPerMember is about how many ranges a member has in a plan that the product has balanced for
// long.
const shardsPerMember = 10

// rangesFor returns how many ranges the plan has for this many members: with the groups, 21 shards
// for 3 members, 505 for 50, and 1,000 for 100.
func rangesFor(members int) int {
	switch {
	case members <= 3:
		return 16
	case members == 100:
		return 1000 - len(catalogue.Groups())
	default:
		return shardsPerMember * members
	}
}

// plansFor returns the first plan, and one that cuts all ranges differently.
func plansFor(members int) (first, second shard.Plan, err error) {
	n := rangesFor(members)
	if first, err = catalogue.DefaultPlan(n); err != nil {
		return first, second, err
	}
	edited, err := catalogue.DefaultPlan(n*3/4 | 1)
	if err != nil {
		return first, second, err
	}
	for i, r := range edited.Rings {
		if r.Scope != shard.ScopeNamespaced {
			continue
		}
		for j := range r.Shards {
			edited.Rings[i].Shards[j].Name = fmt.Sprintf("new-%04d", j)
		}
	}
	second, err = first.Successor(edited)
	return first, second, err
}
