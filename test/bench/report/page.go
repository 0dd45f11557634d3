package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The lines around a generated part of the page. Everything outside is written by hand.
const (
	beginMark = "<!-- generated: %s -->\n"
	endMark   = "<!-- end of generated: %s -->\n"
)

// parts are the generated parts of each page, by its path below docs/benchmarks.
var parts = map[string][]string{
	"README.md":            {"targets", "machine", "plots", "idle", "failed"},
	"results/scenarios.md": {"scenarios"},
	"results/kinds.md":     {"kinds"},
	"results/growth.md":    {"growth", "leases"},
}

// Pages returns the paths of all pages with generated parts, below docs/benchmarks, sorted.
func Pages() []string { return slices.Sorted(maps.Keys(parts)) }

// Page returns the page of that path with this report's generated parts, and everything else
// unchanged. It returns an error if the page lacks a part, has one twice or has an unknown one,
// because nobody would miss a table that silently disappears.
func (r *Report) Page(path, page string, plots []Plot) (string, error) {
	wanted := parts[path]
	if len(wanted) == 0 {
		return "", fmt.Errorf("page %q has no generated parts, must be one of %s", path, strings.Join(Pages(), ", "))
	}
	for _, name := range wanted {
		begin, end := fmt.Sprintf(beginMark, name), fmt.Sprintf(endMark, name)
		if n, m := strings.Count(page, begin), strings.Count(page, end); n != 1 || m != 1 {
			return "", fmt.Errorf("page has %d lines %q and %d lines %q, must have one of each", n, strings.TrimSpace(begin), m, strings.TrimSpace(end))
		}
		before, rest, _ := strings.Cut(page, begin)
		_, after, found := strings.Cut(rest, end)
		if !found {
			return "", fmt.Errorf("page has the end of part %s before its beginning", name)
		}
		page = before + begin + "\n" + r.part(name, plots) + "\n" + end + after
	}
	prefix, _, _ := strings.Cut(beginMark, "%s")
	if n := strings.Count(page, prefix); n != len(wanted) {
		return "", fmt.Errorf("page has %d generated parts, must have %d: %s", n, len(wanted), strings.Join(wanted, ", "))
	}
	return page, nil
}

func (r *Report) part(name string, plots []Plot) string {
	switch name {
	case "targets":
		return r.targets()
	case "machine":
		return r.machine()
	case "scenarios":
		return r.scenarios()
	case "kinds":
		return r.kinds()
	case "growth":
		return r.growth()
	case "idle":
		return r.idle()
	case "leases":
		return r.leases()
	case "failed":
		return r.failures()
	}
	return pictures(plots)
}

func pictures(plots []Plot) string {
	if len(plots) == 0 {
		return nothing
	}
	var b strings.Builder
	for i, p := range plots {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "![%s](%s.svg)\n", p.Title, p.File)
	}
	return b.String()
}
