package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/status"
)

// Says who decided about a shard's owner.
const (
	byPin       = "pin"
	byHome      = "home"
	byComputing = "computed here"
)

// Explanation is what 'flotilla explain' prints: who looks after a namespace.
type Explanation struct {
	Namespace string `json:"namespace"`
	// Hash is where the namespace lies in the keyspace: 0x and 16 digits.
	Hash       string          `json:"hash"`
	Generation int64           `json:"generation"`
	Rings      []RingExplained `json:"rings"`
	Warnings   []string        `json:"warnings,omitempty"`

	now time.Time
}

// RingExplained is who looks after the namespace in one namespaced ring.
type RingExplained struct {
	Ring        string   `json:"ring"`
	Controllers []string `json:"controllers"`
	Shard       string   `json:"shard"`
	Range       string   `json:"range"`
	Isolated    bool     `json:"isolated,omitempty"`
	// Owner is the member that is wanted, and OwnerBy says by whom: pin, home, or "computed here" where the plan leaves
	// it to the consistent hashing.
	Owner   string       `json:"owner,omitempty"`
	OwnerBy string       `json:"ownerBy"`
	State   status.State `json:"state"`
	status.Claim
	// Older are the held Leases of an older generation that cover the namespace.
	Older []status.OlderView `json:"older,omitempty"`
}

// Explain returns who looks after a namespace. It need not exist.
func Explain(r *status.Reading, namespace string) (Explanation, error) {
	if r.Fault != nil {
		return Explanation{}, r.Problem()
	}
	hash := shard.Hash(namespace)
	e := Explanation{Namespace: namespace, Hash: fmt.Sprintf("0x%016x", hash), Generation: r.Plan.Generation, Warnings: status.Warnings(r), now: r.Now}
	wishes, err := fleet.Wish(r.Plan, r.Roster, r.Known, r.Holders(), fleet.Wishes{})
	if err != nil {
		return Explanation{}, err
	}
	older := r.Older()
	for _, ring := range r.Plan.Rings {
		s, found := r.Plan.ShardFor(ring.Name, namespace)
		if !found {
			continue // a cluster ring
		}
		here := shard.Extent{Range: shard.Range{Start: hash, End: hash + 1}, Controllers: ring.Controllers}
		blocking := status.Covering(older, "", here)
		v := RingExplained{
			Ring: ring.Name, Controllers: ring.Controllers, Shard: s.ID.String(), Range: s.Range.String(), Isolated: s.Range == here.Range,
			Owner: s.Belongs(), OwnerBy: byHome, Claim: status.ClaimOf(r, r.ShardLease(s.ID)),
			State: status.StateOf(r, r.ShardLease(s.ID), len(blocking) > 0),
		}
		switch {
		case s.Pin != "":
			v.OwnerBy = byPin
		case s.Home == "":
			v.Owner, v.OwnerBy = wishes.Owner(s.ID), byComputing
		}
		for _, o := range blocking {
			v.Older = append(v.Older, status.OlderView{Lease: o.Name, Range: o.Annotations[fleet.RangeAnnotation], Generation: o.Annotations[fleet.GenerationAnnotation], Claim: status.ClaimOf(r, o)})
		}
		e.Rings = append(e.Rings, v)
	}
	return e, nil
}

// tableExplanation writes an Explanation for people.
func tableExplanation(w io.Writer, e Explanation) {
	fmt.Fprintf(w, "Namespace %s, hash %s, plan generation %d\n", e.Namespace, e.Hash, e.Generation)
	for _, v := range e.Rings {
		fmt.Fprintf(w, "\nRing %s\n", v.Ring)
		var lines [][2]string
		add := func(name, value string) { lines = append(lines, [2]string{name, value}) }
		add("shard", v.Shard+map[bool]string{true: " (of this namespace alone)"}[v.Isolated])
		add("range", v.Range)
		add("state", string(v.State))
		if v.Incarnation == "" {
			add("holder", fmt.Sprintf("nobody, after term %d", v.Term))
		} else {
			add("holder", holder(v.Claim)+map[bool]string{true: " (silent)"}[v.Silent])
			add("incarnation", v.Incarnation)
			add("since", since(v.Claim, e.now))
		}
		for _, o := range v.Older {
			add("still run by", fmt.Sprintf("%s of Lease %s, generation %s, since %s", holder(o.Claim), o.Lease, o.Generation, since(o.Claim, e.now)))
		}
		if v.NextHolder != "" {
			add("asked for by", v.NextHolder)
		}
		add("owner", explainedOwner(v))
		add("controllers", fmt.Sprintf("%d, which -o yaml lists", len(v.Controllers)))
		for _, line := range lines {
			fmt.Fprintf(w, "  %-13s %s\n", line[0], status.Plain(line[1]))
		}
	}
	printWarnings(w, e.Warnings)
}

func explainedOwner(v RingExplained) string {
	switch {
	case v.OwnerBy != byComputing:
		return fmt.Sprintf("%s, by the plan's %s", v.Owner, v.OwnerBy)
	case v.Owner == "":
		return "left to the consistent hashing; none, as no live member serves the ring"
	default:
		return fmt.Sprintf("left to the consistent hashing: %s, as computed here", v.Owner)
	}
}

func since(c status.Claim, now time.Time) string {
	if c.Since == nil {
		return fmt.Sprintf("unknown, term %d", c.Term)
	}
	return fmt.Sprintf("%s (%s), term %d", c.Since.Format(time.RFC3339), ago(c.Since, now), c.Term)
}
