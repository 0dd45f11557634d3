package cli

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Rebalancing is what the planner would do now.
type Rebalancing struct {
	Edit  Edit
	Rings []RingRebalancing
}

// RingRebalancing is what the planner would do with one namespaced ring.
type RingRebalancing struct {
	Ring string `json:"ring"`
	// Members are those that get shards.
	Members []string `json:"members"`
	// Skipped says why the ring was left alone, if it was.
	Skipped string     `json:"skipped,omitempty"`
	Steps   []StepView `json:"steps,omitempty"`
	// Moved is the weight that changes its member, Cut that of new shards, Total that of the ring,
	// in objects.
	Moved  int64       `json:"moved"`
	Cut    int64       `json:"cut"`
	Total  int64       `json:"total"`
	Before BalanceView `json:"before"`
	After  BalanceView `json:"after"`
}

// StepView is what happens to one shard.
type StepView struct {
	Kind   shard.StepKind `json:"kind"`
	Shard  string         `json:"shard"`
	Of     []string       `json:"of"`
	From   []string       `json:"from"`
	To     string         `json:"to"`
	Weight int64          `json:"weight"`
}

// BalanceView is the balance of a ring's weight over its members, in objects.
type BalanceView struct {
	// MaxToMean is the ratio of the heaviest member's weight to the mean, Bound its lower bound.
	MaxToMean float64          `json:"maxToMean"`
	Bound     float64          `json:"bound"`
	Members   map[string]int64 `json:"members"`
}

func viewBalance(b shard.Balance) BalanceView {
	return BalanceView{MaxToMean: rounded(b.Ratio()), Bound: rounded(b.Bound), Members: b.Members}
}

func rounded(x float64) float64 { return math.Round(x*1000) / 1000 }

// errNotCounted says that the planner has no weights.
var errNotCounted = errors.New("the weights of the namespaces are not known yet: holders publish it within seconds of taking a shard, and once a minute")

// Rebalance returns what the planner would do now, for each namespaced ring. The plan may be
// written as it is; if Edit.Same is true, nothing is worth doing. The error says that there are no
// weights.
func Rebalance(r *status.Reading, limits shard.Limits, check func(shard.Plan) error) (Rebalancing, error) {
	if r.Fault != nil {
		return Rebalancing{}, r.Problem()
	}
	if err := checkAtRest(r); err != nil {
		return Rebalancing{}, err
	}
	out := Rebalancing{Edit: Edit{From: r.Plan, Next: r.Plan}}
	var skipped []error
	for _, ring := range r.Plan.Rings {
		if ring.Scope != shard.ScopeNamespaced {
			continue
		}
		v := RingRebalancing{Ring: ring.Name, Members: r.Stayers(ring)}
		err := out.Edit.propose(r, ring, limits, &v)
		if err != nil {
			v.Skipped = err.Error()
			skipped = append(skipped, fmt.Errorf("ring %s: %w", ring.Name, err))
		}
		out.Rings = append(out.Rings, v)
	}
	if len(skipped) == len(out.Rings) && len(skipped) > 0 {
		return out, errors.Join(skipped...)
	}
	if out.Edit.Same() {
		return out, nil
	}
	out.Edit.Next.Generation = r.Plan.Generation + 1
	if err := shard.CheckSuccessor(r.Plan, out.Edit.Next); err != nil {
		return out, err
	}
	var err error
	out.Edit, err = out.Edit.checked(r, check)
	return out, err
}

// checkAtRest returns an error while the planner moves nothing because of a canary: one runs, or
// members of an aborted version live, and get nothing.
func checkAtRest(r *status.Reading) error {
	switch v := r.Canary(); {
	case v == nil:
	case !v.Aborted:
		return fmt.Errorf("a canary of %s runs: nothing is moved until it is promoted or aborted", v)
	case slices.ContainsFunc(r.Roster.Members(), r.IsTried):
		return fmt.Errorf("members of %s, which was aborted, are live: nothing is moved until they are replaced, or have their share again by 'flotilla canary forget --force'", status.Plain(v.Version))
	}
	return nil
}

// propose adds the steps for one ring. All proposals have the same generation: they make one plan.
func (e *Edit) propose(r *status.Reading, ring shard.Ring, limits shard.Limits, v *RingRebalancing) error {
	if len(v.Members) == 0 {
		return errors.New("no member serves it")
	}
	weights, missing := r.Weights(ring)
	if len(missing) > 0 {
		return fmt.Errorf("%w (missing from %s)", errNotCounted, some(idTexts(missing)))
	}
	e.Next.Generation = e.From.Generation
	p, worth, err := shard.Propose(e.Next, ring.Name, weights.Weights, v.Members, limits)
	if err != nil {
		return err
	}
	v.Total, v.Before = weights.Census.Total(), viewBalance(shard.BalanceOf(e.Next, ring.Name, weights.Weights, v.Members))
	if v.After = v.Before; !worth {
		return nil
	}
	e.Next = p.Plan
	v.Moved, v.Cut, v.After = p.Moved, p.Cut, viewBalance(p.After)
	for _, s := range p.Steps {
		v.Steps = append(v.Steps, StepView{Kind: s.Kind, Shard: s.Shard.String(), Of: idTexts(s.Of), From: s.From, To: s.To, Weight: s.Weight})
	}
	return nil
}

func idTexts(ids []shard.ID) []string {
	var out []string
	for _, id := range ids {
		out = append(out, id.String())
	}
	return out
}

// tableRebalancing writes what would be done for people.
func tableRebalancing(w io.Writer, rings []RingRebalancing) {
	for i, ring := range rings {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if ring.Skipped != "" {
			fmt.Fprintf(w, "Ring %s: left alone: %s\n", ring.Ring, status.Plain(ring.Skipped))
			continue
		}
		fmt.Fprintf(w, "Ring %s: %s, %s\n", ring.Ring, status.Plural(int(ring.Total), "object"), status.Plural(len(ring.Members), "member"))
		if len(ring.Steps) == 0 {
			fmt.Fprintf(w, "Nothing is worth doing: max/mean is %.3f, and could be %.3f\n", ring.Before.MaxToMean, ring.Before.Bound)
			tableBalance(w, ring.Before, ring.Before)
			continue
		}
		var lines [][]string
		for _, s := range ring.Steps {
			lines = append(lines, []string{string(s.Kind), inRing(s.Shard), few(s.Of), strings.Join(slices.Compact(slices.Clone(s.From)), " "), s.To, fmt.Sprint(s.Weight)})
		}
		rows(w, []string{"STEP", "SHARD", "OF", "FROM", "TO", "OBJECTS"}, lines)
		fmt.Fprintf(w, "Moved %s, cut %s\n", share(ring.Moved, ring.Total), share(ring.Cut, ring.Total))
		fmt.Fprintf(w, "max/mean %.3f before, %.3f after; it could be %.3f\n", ring.Before.MaxToMean, ring.After.MaxToMean, ring.After.Bound)
		tableBalance(w, ring.Before, ring.After)
	}
}

// inRing returns a shard's name without its ring, which stands above.
func inRing(id string) string {
	_, name, _ := strings.Cut(id, "/")
	return name
}

// few returns the names of some neighbours: only the first and the last if there are many.
func few(ids []string) string {
	if n := len(ids); n > 3 {
		return fmt.Sprintf("%s ... %s (%d)", inRing(ids[0]), inRing(ids[n-1]), n)
	}
	var names []string
	for _, id := range ids {
		names = append(names, inRing(id))
	}
	return strings.Join(names, " ")
}

// tableBalance writes what each member has.
func tableBalance(w io.Writer, before, after BalanceView) {
	names := map[string]int64{}
	for _, b := range []BalanceView{before, after} {
		for name := range b.Members {
			names[name] = 0
		}
	}
	var lines [][]string
	for _, name := range status.SortNaturally(sortedKeys(names)) {
		lines = append(lines, []string{name, fmt.Sprint(before.Members[name]), fmt.Sprint(after.Members[name])})
	}
	rows(w, []string{"MEMBER", "BEFORE", "AFTER"}, lines)
}

// share returns a weight and how much it is of the total.
func share(part, total int64) string {
	if total <= 0 {
		return status.Plural(int(part), "object")
	}
	return fmt.Sprintf("%s (%.1f %%)", status.Plural(int(part), "object"), 100*float64(part)/float64(total))
}
