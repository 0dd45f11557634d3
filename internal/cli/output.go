package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	"github.com/flotilla-kube/flotilla/internal/status"
)

// Forms of output.
const (
	formTable    = "table"
	formJSON     = "json"
	formYAML     = "yaml"
	formDocument = "document"
	formWide     = "wide"
	formName     = "name"
	// formJSONPath precedes the template; formPath is how it is shown.
	formJSONPath = "jsonpath="
	formPath     = formJSONPath + "TEMPLATE"
)

// maxCell is how many characters of a text a table shows.
const maxCell = 80

// print writes a view in the requested form; table writes it for people.
func print[V any](w io.Writer, form string, view V, table func(io.Writer, V)) error {
	if template, is := strings.CutPrefix(form, formJSONPath); is {
		return printPath(w, template, view)
	}
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

// printNames writes names as other commands take them, one a line.
func printNames(w io.Writer, names []string) error {
	for _, name := range names {
		if _, err := fmt.Fprintln(w, status.Plain(name)); err != nil {
			return err
		}
	}
	return nil
}

// parsePath reads a JSONPath template as kubectl does: the braces may be left out around a single
// path.
func parsePath(template string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(template, "{") {
		template = "{." + strings.TrimPrefix(template, ".") + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, fmt.Errorf("--output %s: %w", formJSONPath+template, err)
	}
	return path, nil
}

// printPath writes the result of a JSONPath template for a view, with the names of -o json.
func printPath(w io.Writer, template string, view any) error {
	path, err := parsePath(template)
	if err != nil {
		return err
	}
	text, err := json.Marshal(view)
	if err != nil {
		return err
	}
	var data any
	if err := utiljson.Unmarshal(text, &data); err != nil {
		return err
	}
	if err := path.Execute(w, data); err != nil {
		return fmt.Errorf("--output %s: %w", formJSONPath+template, err)
	}
	return nil
}

// rows writes lines of cells, aligned. Each cell is plain afterwards.
func rows(w io.Writer, head []string, lines [][]string) { rowsOf(w, maxCell, head, lines) }

// rowsOf is rows with cells of at most that many characters.
func rowsOf(w io.Writer, most int, head []string, lines [][]string) {
	aligned := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, line := range slices.Concat([][]string{head}, lines) {
		cells := make([]string, len(line))
		for i, text := range line {
			cells[i] = cell(text, most)
		}
		fmt.Fprintln(aligned, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	_ = aligned.Flush() // the error is the writer's; nobody could receive it
}

// cell returns a text that is safe to print within a line: quoted if it is not plain, cut to most
// characters, and never empty.
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
