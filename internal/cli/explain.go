package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Names for what decided a shard's owner.
const (
	byPin       = "pin"
	byHome      = "home"
	byComputing = "computed here"
)

// Explanation is what 'flotilla explain' prints: who runs the controllers of a namespace, or of an
// object.
type Explanation struct {
	// Object is set if the command was called with an object.
	Object *ObjectExplained `json:"object,omitempty"`
	// Namespace is empty for an object without one.
	Namespace string `json:"namespace,omitempty"`
	// Hash is where the namespace lies in the keyspace: 0x and 16 digits.
	Hash       string          `json:"hash,omitempty"`
	Generation int64           `json:"generation"`
	Rings      []RingExplained `json:"rings,omitempty"`
	// Groups are the groups that decide over the object.
	Groups []GroupExplained `json:"groups,omitempty"`
	// Elsewhere are controllers of ranges that decide over a cluster-scoped object, each for the
	// objects of its range. Missing are controllers that decide over the object but are not in the
	// plan.
	Elsewhere []string `json:"elsewhere,omitempty"`
	Missing   []string `json:"missing,omitempty"`
	Warnings  []string `json:"warnings,omitempty"`

	now time.Time
}

// RingExplained says who runs the controllers of the namespace in one namespaced ring.
type RingExplained struct {
	Ring        string   `json:"ring"`
	Controllers []string `json:"controllers"`
	// Deciding are those of the controllers that decide over objects of the type asked for.
	Deciding []string `json:"deciding,omitempty"`
	Shard    string   `json:"shard"`
	Range    string   `json:"range"`
	Isolated bool     `json:"isolated,omitempty"`
	// Owner is the member that should own the shard. OwnerBy says what decides that: pin, home, or
	// "computed here" if the plan leaves it to the consistent hashing.
	Owner   string       `json:"owner,omitempty"`
	OwnerBy string       `json:"ownerBy"`
	State   status.State `json:"state"`
	status.Claim
	// Older are the held Leases of an older generation that cover the namespace.
	Older []status.OlderView `json:"older,omitempty"`
}

// Explain returns who runs the controllers of a namespace, which need not exist.
func Explain(r *status.Reading, namespace string) (Explanation, error) {
	if r.Fault != nil {
		return Explanation{}, r.Problem()
	}
	hash := shard.Hash(namespace)
	e := Explanation{Namespace: namespace, Hash: fmt.Sprintf("0x%016x", hash), Generation: r.Plan.Generation, Warnings: status.Warnings(r), now: r.Now}
	assigned, err := r.Assignment()
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
			Owner: s.PreferredMember(), OwnerBy: byHome, Claim: status.ClaimOf(r, r.ShardLease(s.ID)),
			State: status.StateOf(r, r.ShardLease(s.ID), len(blocking) > 0),
		}
		switch {
		case s.Pin != "":
			v.OwnerBy = byPin
		case s.Home == "":
			v.Owner, v.OwnerBy = assigned.Owner(s.ID), byComputing
		}
		for _, o := range blocking {
			v.Older = append(v.Older, status.OlderView{Lease: o.Name, Range: o.Annotations[leaseapi.RangeAnnotation], Generation: o.Annotations[leaseapi.GenerationAnnotation], Claim: status.ClaimOf(r, o)})
		}
		e.Rings = append(e.Rings, v)
	}
	return e, nil
}

// tableExplanation writes an Explanation for people.
func tableExplanation(w io.Writer, e Explanation) {
	if e.Object != nil {
		tableObject(w, e)
	} else {
		fmt.Fprintf(w, "Namespace %s, hash %s, plan generation %d\n", e.Namespace, e.Hash, e.Generation)
	}
	for _, v := range e.Rings {
		fmt.Fprintf(w, "\nRing %s\n", v.Ring)
		lines := [][2]string{
			{"shard", v.Shard + map[bool]string{true: " (of this namespace alone)"}[v.Isolated]},
			{"range", v.Range},
			{"state", string(v.State)},
		}
		add := func(name, value string) { lines = append(lines, [2]string{name, value}) }
		lines = append(lines, claimLines(v.Claim, e.now)...)
		for _, o := range v.Older {
			add("still run by", fmt.Sprintf("%s of Lease %s, generation %s, since %s", holder(o.Claim), o.Lease, o.Generation, since(o.Claim, e.now)))
		}
		if v.NextHolder != "" {
			add("asked for by", v.NextHolder)
		}
		add("owner", explainedOwner(v))
		if len(v.Deciding) > 0 {
			add("decides", strings.Join(v.Deciding, ", "))
		}
		add("controllers", fmt.Sprintf("%d, which -o yaml lists", len(v.Controllers)))
		explainedLines(w, lines)
	}
	tableGroups(w, e)
	printWarnings(w, e.Warnings)
}

// claimLines say who holds a shard.
func claimLines(c status.Claim, now time.Time) [][2]string {
	if c.Incarnation == "" {
		return [][2]string{{"holder", fmt.Sprintf("nobody, after term %d", c.Term)}}
	}
	return [][2]string{
		{"holder", holder(c) + map[bool]string{true: " (silent)"}[c.Silent]},
		{"incarnation", c.Incarnation},
		{"since", since(c, now)},
	}
}

func explainedLines(w io.Writer, lines [][2]string) {
	for _, line := range lines {
		fmt.Fprintf(w, "  %-13s %s\n", line[0], status.Plain(line[1]))
	}
}

func explainedOwner(v RingExplained) string {
	switch {
	case v.OwnerBy != byComputing:
		return fmt.Sprintf("%s, by the plan's %s", v.Owner, v.OwnerBy)
	case v.Owner == "":
		return "left to consistent hashing; none, as no live member serves the ring"
	default:
		return fmt.Sprintf("left to consistent hashing: %s, as computed here", v.Owner)
	}
}

func since(c status.Claim, now time.Time) string {
	if c.Since == nil {
		return fmt.Sprintf("unknown, term %d", c.Term)
	}
	return fmt.Sprintf("%s (%s), term %d", c.Since.Format(time.RFC3339), ago(c.Since, now), c.Term)
}
