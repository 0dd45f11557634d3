package monitoring

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"sigs.k8s.io/yaml"
)

// Rule is one alerting rule, in Prometheus' format.
type Rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Group is a group of rules that are evaluated together.
type Group struct {
	Name     string `json:"name"`
	Interval string `json:"interval,omitempty"`
	Rules    []Rule `json:"rules"`
}

// Rules is the content of a rules file, and the spec of a PrometheusRule.
type Rules struct {
	Groups []Group `json:"groups"`
}

// Root returns the folder of the module, at or above the current directory.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("monitoring: no go.mod at or above %s", start)
		}
	}
}

// LoadRules reads the rules from a file with a PrometheusRule. An unknown field is an error.
func LoadRules(file string) (Rules, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return Rules{}, err
	}
	var object struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Spec       Rules          `json:"spec"`
	}
	if err := yaml.UnmarshalStrict(content, &object); err != nil {
		return Rules{}, fmt.Errorf("%s: %w", file, err)
	}
	if object.Kind != "PrometheusRule" || object.APIVersion != "monitoring.coreos.com/v1" {
		return Rules{}, fmt.Errorf("%s: is a %s of %s, not a PrometheusRule of monitoring.coreos.com/v1", file, object.Kind, object.APIVersion)
	}
	return object.Spec, nil
}

// WriteFile writes the rules in the format of Prometheus and promtool.
func (r Rules) WriteFile(file string) error {
	content, err := yaml.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}

// All returns the rules of all groups.
func (r Rules) All() []Rule {
	var all []Rule
	for _, g := range r.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// Names returns the names of the alerts, sorted.
func (r Rules) Names() []string {
	names := map[string]bool{}
	for _, rule := range r.All() {
		names[rule.Alert] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// Faster returns the rules with every duration divided by factor: intervals, `for`, ranges and
// offsets. Thresholds that are times, such as the age of a renewal, stay.
func (r Rules) Faster(factor int) (Rules, error) {
	faster := Rules{}
	for _, g := range r.Groups {
		var err error
		if g.Interval, err = divide(g.Interval, factor); err != nil {
			return Rules{}, err
		}
		g.Rules = slices.Clone(g.Rules)
		for i := range g.Rules {
			rule := &g.Rules[i]
			if rule.For, err = divide(rule.For, factor); err != nil {
				return Rules{}, fmt.Errorf("%s: for: %w", rule.Alert, err)
			}
			if rule.Expr, err = divideAll(rule.Expr, factor); err != nil {
				return Rules{}, fmt.Errorf("%s: expr: %w", rule.Alert, err)
			}
		}
		faster.Groups = append(faster.Groups, g)
	}
	return faster, nil
}

var durations = regexp.MustCompile(`(\[|offset )([0-9][0-9a-z]*)`)

func divideAll(expr string, factor int) (string, error) {
	var failed error
	divided := durations.ReplaceAllStringFunc(expr, func(found string) string {
		parts := durations.FindStringSubmatch(found)
		d, err := divide(parts[2], factor)
		if err != nil {
			failed = err
		}
		return parts[1] + d
	})
	return divided, failed
}

func divide(text string, factor int) (string, error) {
	if text == "" {
		return "", nil
	}
	// Prometheus also has days and weeks. They are errors here.
	d, err := time.ParseDuration(text)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%dms", (d / time.Duration(factor)).Milliseconds()), nil
}
