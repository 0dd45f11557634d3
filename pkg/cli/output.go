package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/flotilla-kube/flotilla/pkg/status"
)

// Forms of output.
const (
	formTable    = "table"
	formJSON     = "json"
	formYAML     = "yaml"
	formDocument = "document"
)

// maxCell is how many characters of a text a table shows.
const maxCell = 80

// print writes a view in the form that was asked for; table writes it for people.
func print[V any](w io.Writer, form string, view V, table func(io.Writer, V)) error {
	switch form {
	case formJSON:
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		return encoder.Encode(view)
	case formYAML:
		text, err := yaml.Marshal(view)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	default:
		table(w, view)
		return nil
	}
}

// rows writes lines of cells, aligned. Each cell is plain afterwards.
func rows(w io.Writer, head []string, lines [][]string) { rowsOf(w, maxCell, head, lines) }

// rowsOf is rows with cells of at most so many characters.
func rowsOf(w io.Writer, most int, head []string, lines [][]string) {
	aligned := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, line := range slices.Concat([][]string{head}, lines) {
		cells := make([]string, len(line))
		for i, text := range line {
			cells[i] = cell(text, most)
		}
		fmt.Fprintln(aligned, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	_ = aligned.Flush() // the error is the writer's, which nobody could be told of
}

// cell returns a text that is safe to print within a line: quoted if it is not plain, cut to most characters, and never empty.
func cell(text string, most int) string {
	if text == "" {
		return "-"
	}
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-3]) + "..."
	}
	return status.Plain(text)
}

// ago returns for people how long before now t was.
func ago(t *time.Time, now time.Time) string {
	if t == nil {
		return ""
	}
	return status.Short(now.Sub(*t)) + " ago"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
