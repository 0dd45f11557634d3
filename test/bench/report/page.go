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

// Page returns the page with its generated parts as this report has them, and all else as it was. A page that lacks one of the
// parts, has one twice or has another is an error, for a table that is silently gone would not be missed.
func (r *Report) Page(page string, plots []Plot) (string, error) {
	parts := map[string]string{
		"targets": r.targets(), "machine": r.machine(), "scenarios": r.scenarios(), "kinds": r.kinds(), "growth": r.growth(), "idle": r.idle(),
		"leases": r.leases(), "failed": r.failures(), "plots": pictures(plots),
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		begin, end := fmt.Sprintf(beginMark, name), fmt.Sprintf(endMark, name)
		if n, m := strings.Count(page, begin), strings.Count(page, end); n != 1 || m != 1 {
			return "", fmt.Errorf("page has %d lines %q and %d lines %q, must have one of each", n, strings.TrimSpace(begin), m, strings.TrimSpace(end))
		}
		before, rest, _ := strings.Cut(page, begin)
		_, after, found := strings.Cut(rest, end)
		if !found {
			return "", fmt.Errorf("page has the end of part %s before its beginning", name)
		}
		page = before + begin + "\n" + parts[name] + "\n" + end + after
	}
	prefix, _, _ := strings.Cut(beginMark, "%s")
	if n := strings.Count(page, prefix); n != len(parts) {
		return "", fmt.Errorf("page has %d generated parts, must have %d: %s", n, len(parts), strings.Join(slices.Sorted(maps.Keys(parts)), ", "))
	}
	return page, nil
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
