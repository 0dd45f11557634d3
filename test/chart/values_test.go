package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"
)

const (
	root   = "../.."
	folder = root + "/deploy/chart"
)

// value is a key of values.yaml that users set as a whole: a scalar, a list, or a mapping that they
// fill.
type value struct {
	path, comment, preset string
}

// values reads values.yaml in its order.
func values(t *testing.T) []value {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(readFile(t, "values.yaml")), &document); err != nil {
		t.Fatal(err)
	}
	all := leaves(t, "", document.Content[0])
	if len(all) < 35 {
		t.Fatalf("only %d values are found: the test reads less than it should", len(all))
	}
	return all
}

// whole are mappings with presets that are set as a whole.
var whole = []string{"resources"}

func leaves(t *testing.T, prefix string, mapping *yaml.Node) []value {
	var all []value
	for i := 0; i < len(mapping.Content); i += 2 {
		key, content := mapping.Content[i], mapping.Content[i+1]
		path := prefix + key.Value
		if content.Kind == yaml.MappingNode && len(content.Content) > 0 && !slices.Contains(whole, path) {
			all = append(all, leaves(t, path+".", content)...)
			continue
		}
		all = append(all, value{path: path, comment: comment(key), preset: preset(t, content)})
	}
	return all
}

// comment returns the comment right above a key, in one line.
func comment(key *yaml.Node) string {
	paragraphs := strings.Split(key.HeadComment, "\n\n")
	lines := strings.Split(paragraphs[len(paragraphs)-1], "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(strings.TrimPrefix(line, "#"))
	}
	return strings.Join(lines, " ")
}

func preset(t *testing.T, content *yaml.Node) string {
	content = &yaml.Node{Kind: content.Kind, Tag: content.Tag, Value: content.Value, Style: content.Style | yaml.FlowStyle, Content: content.Content}
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
