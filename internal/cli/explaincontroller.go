package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// ControllerExplained is what 'flotilla explain --controller' prints: who runs a controller.
type ControllerExplained struct {
	Controller string `json:"controller"`
	Generation int64  `json:"generation"`
	// Ring is the plan's ring with the controller, and Scope its scope; empty if the plan does not
	// have the controller.
	Ring  string      `json:"ring,omitempty"`
	Scope shard.Scope `json:"scope,omitempty"`
	// Shards are the shards that run it: all of a ring of ranges, or one group.
	Shards []ControllerShard `json:"shards"`
	// Lacking are the live members whose version cannot run it where the plan has it, Unknown those
	// that do not say which controllers their version has.
	Lacking []string `json:"lacking,omitempty"`
	Unknown []string `json:"unknown,omitempty"`
	// Knowing are the live members that have it although the plan does not.
	Knowing  []string `json:"knowing,omitempty"`
	Warnings []string `json:"warnings,omitempty"`

	now time.Time
}

// ControllerShard is a shard that has the controller.
type ControllerShard struct {
	status.ShardView
	// Lacks is set if the holder says that it runs the shard without the controller.
	Lacks bool `json:"lacks,omitempty"`
}

// suffix ends the names of most controllers.
const suffix = "-controller"

// ExplainController returns who runs a controller. Its name may lack "-controller" at the end.
func ExplainController(r *status.Reading, name string) (ControllerExplained, error) {
	if r.Fault != nil {
		return ControllerExplained{}, r.Problem()
	}
	e := ControllerExplained{Generation: r.Plan.Generation, Shards: []ControllerShard{}, Warnings: status.Warnings(r), now: r.Now}
	older, all := r.Older(), map[string]bool{}
	for _, ring := range r.Plan.Rings {
		for _, s := range ring.Shards {
			for _, controller := range r.Plan.ControllersOf(s.ID) {
				all[controller] = true
				if controller != name && controller != name+suffix {
					continue
				}
				lacks := strings.Split(r.ShardLease(s.ID).Annotations[leaseapi.LacksAnnotation], ",")
				v := ControllerShard{ShardView: status.ViewShard(r, s, older)}
				v.Lacks = v.Incarnation != "" && !v.Silent && slices.Contains(lacks, controller)
				e.Controller, e.Ring, e.Scope = controller, ring.Name, ring.Scope
				e.Shards = append(e.Shards, v)
			}
		}
	}
	e.ofMembers(r.Roster.Members(), name)
	if e.Ring == "" && len(e.Knowing) == 0 && !strings.HasSuffix(name, suffix) {
		e.Controller = ""
		e.ofMembers(r.Roster.Members(), name+suffix)
	}
	if e.Ring == "" && len(e.Knowing) == 0 {
		return ControllerExplained{}, fmt.Errorf("--controller %q: neither the plan nor a live member has it; %s", name, similar(sortedKeys(all), name))
	}
	return e, nil
}

// ofMembers says which live members have the controller, and which lack it.
func (e *ControllerExplained) ofMembers(members []membership.Member, name string) {
	e.Controller = cmp.Or(e.Controller, name)
	for _, m := range members {
		known, says := leaseapi.KnownOf(m)
		switch {
		case e.Ring == "" && says && known.Knows(name):
			e.Knowing = append(e.Knowing, m.Name)
		case e.Ring == "":
		case !says:
			e.Unknown = append(e.Unknown, m.Name)
		case !known.Runs(e.Controller, e.Scope):
			e.Lacking = append(e.Lacking, m.Name)
		}
	}
}

// similar lists the names that the caller may have meant.
func similar(names []string, name string) string {
	word, _, _ := strings.Cut(name, "-")
	like := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return word == "" || !strings.Contains(n, word) })
	if len(like) > 0 {
		return "the plan has " + some(like)
	}
	return "the plan has " + some(names)
}

// tableController writes a ControllerExplained for people.
func tableController(w io.Writer, e ControllerExplained) {
	if e.Ring == "" {
		fmt.Fprintf(w, "Controller %s, not in the plan, generation %d, so that nobody runs it\n", status.Plain(e.Controller), e.Generation)
		fmt.Fprintf(w, "\nMembers that have it: %s\n", status.Plain(strings.Join(e.Knowing, ", ")))
		printWarnings(w, e.Warnings)
		return
	}
	where := "in the group " + e.Shards[0].Shard
	if e.Scope == shard.ScopeNamespaced {
		where = fmt.Sprintf("in each of %s of ring %s", status.Plural(len(e.Shards), "range"), e.Ring)
	}
	fmt.Fprintf(w, "Controller %s, %s, plan generation %d\n\n", e.Controller, where, e.Generation)
	var lines [][]string
	for _, s := range e.Shards {
		text := string(s.State)
		if s.Lacks {
			text += ", without it"
		}
		_, detail, _ := strings.Cut(state(s.ShardView), ", ")
		lines = append(lines, []string{s.Shard, text, holder(s.Claim), s.Wanted, s.Range, ago(s.Since, e.now), fmt.Sprint(s.Term), detail})
	}
	rows(w, []string{"SHARD", "STATE", "HOLDER", "OWNER", "RANGE", "SINCE", "TERM", "DETAIL"}, lines)
	if len(e.Lacking)+len(e.Unknown) > 0 {
		fmt.Fprintln(w)
	}
	if len(e.Lacking) > 0 {
		fmt.Fprintf(w, "Members whose version cannot run it there: %s\n", status.Plain(strings.Join(e.Lacking, ", ")))
	}
	if len(e.Unknown) > 0 {
		fmt.Fprintf(w, "Members that do not say what their version has: %s\n", status.Plain(strings.Join(e.Unknown, ", ")))
	}
	printWarnings(w, e.Warnings)
}
