package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
)

// Selector is a place in an expression that reads series.
type Selector struct {
	Metric   string `json:"metric"`
	Matchers []struct {
		Label, Op, Value string
	} `json:"matchers"`
}

// Reading is what an expression reads; see hack/tools/prometheus/promexpr.
type Reading struct {
	Error     string     `json:"error"`
	Selectors []Selector `json:"selectors"`
	Labels    []string   `json:"labels"`
}

// Read parses expressions with the binary promexpr.
func Read(promexpr string, expressions []string) ([]Reading, error) {
	input, err := json.Marshal(expressions)
	if err != nil {
		return nil, err
	}
	command := exec.Command(promexpr)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", promexpr, err, strings.TrimSpace(stderr.String()))
	}
	var readings []Reading
	if err := json.Unmarshal(stdout.Bytes(), &readings); err != nil {
		return nil, fmt.Errorf("%s: %w", promexpr, err)
	}
	if len(readings) != len(expressions) {
		return nil, fmt.Errorf("%s: %d answers to %d expressions", promexpr, len(readings), len(expressions))
	}
	for i, r := range readings {
		if r.Error != "" {
			return nil, fmt.Errorf("%s\n%s", r.Error, expressions[i])
		}
	}
	return readings, nil
}
