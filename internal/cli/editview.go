package cli

import (
	"fmt"
	"io"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// EditView is what 'flotilla plan diff' prints.
type EditView struct {
	// From is the generation in force, 0 if there is none, and To the one that would follow; they
	// are the same if nothing would change.
	From    int64        `json:"from"`
	To      int64        `json:"to"`
	Changes []ChangeView `json:"changes"`
	// Kept are unchanged shards that get their present holders as homes.
	Kept []string `json:"kept,omitempty"`
	// Vouches is set if the Lease lacks the last good plan, and so this plan is written even if it
	// is the same.
	Vouches  bool     `json:"vouches,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// ChangeView is one difference.
type ChangeView struct {
	Kind shard.ChangeKind `json:"kind"`
	Name string           `json:"name"`
	Text string           `json:"text"`
}

func viewEdit(e Edit) EditView {
	v := EditView{From: e.From.Generation, To: e.Next.Generation, Changes: []ChangeView{}, Kept: idTexts(e.Kept), Vouches: e.vouches, Warnings: e.Warnings}
	if e.Same() {
		v.To = v.From
		return v
	}
	for _, c := range e.Changes {
		name := c.Ring
		switch {
		case c.Canary != "":
			name = c.Canary
		case c.Controller != "":
			name = c.Controller
		case c.ID != (shard.ID{}):
			name = c.ID.String()
		}
		v.Changes = append(v.Changes, ChangeView{Kind: c.Kind, Name: name, Text: c.Text})
	}
	return v
}

// tableEdit writes an EditView for people.
func tableEdit(w io.Writer, v EditView) {
	if v.From == v.To {
		fmt.Fprintf(w, "Nothing would change: plan generation %d is the same\n", v.From)
		printWarnings(w, v.Warnings)
		return
	}
	if v.From == 0 {
		fmt.Fprintf(w, "No plan that can be used -> generation %d\n", v.To)
	} else {
		fmt.Fprintf(w, "Generation %d -> %d\n", v.From, v.To)
	}
	var lines [][]string
	for _, c := range v.Changes {
		lines = append(lines, []string{string(c.Kind), c.Name, c.Text})
	}
	switch {
	case len(lines) > 0:
		rows(w, []string{"CHANGE", "NAME", "WHAT"}, lines)
	case v.Vouches:
		fmt.Fprintln(w, "Nothing differs, but the Lease does not keep the last good plan: this becomes it")
	default:
		fmt.Fprintln(w, "Only weights differ: shards are dealt out by them while a member is away")
	}
	if n := len(v.Kept); n > 0 {
		fmt.Fprintf(w, "%s given the present holder as home, so as to stay there\n", status.Plural(n, "shard"))
	}
	printWarnings(w, v.Warnings)
}
