package shard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Document returns the plan as JSON with a line for each shard, for people to read and edit.
// ParsePlan is its inverse.
func (p Plan) Document() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n  \"generation\": %d,\n", p.Generation)
	if p.Canary != nil {
		text, err := json.Marshal(p.Canary)
		if err != nil {
			return "", fmt.Errorf("canary: %w", err)
		}
		fmt.Fprintf(&b, "  \"canary\": %s,\n", text)
	}
	b.WriteString("  \"rings\": [")
	for i, r := range p.Rings {
		head := r
		head.Shards = []Shard{}
		text, err := json.Marshal(head)
		if err != nil {
			return "", fmt.Errorf("ring %q: %w", r.Name, err)
		}
		before, after, _ := strings.Cut(string(text), `"shards":[]`)
		fmt.Fprintf(&b, "%s\n    %s\"shards\": [", comma(i), before)
		for j, s := range r.Shards {
			line, err := json.Marshal(s)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "%s\n      %s", comma(j), line)
		}
		fmt.Fprintf(&b, "\n    ]%s", after)
	}
	b.WriteString("\n  ]\n}\n")
	return b.String(), nil
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}

// ParsePlan reads a plan from JSON, or from what Packed returns. It refuses unknown fields, which
// could change what the plan means, text after the plan, and what Validate refuses.
func ParsePlan(text []byte) (Plan, error) {
	var p Plan
	var err error
	if packed, found := bytes.CutPrefix(text, []byte(packedPrefix)); found {
		p, err = unpackPlan(packed)
	} else {
		err = parseStrictly(text, &p)
	}
	if err != nil {
		return Plan{}, err
	}
	return p, p.Validate()
}

// parseStrictly reads the one JSON value that the text must be, and refuses unknown fields.
func parseStrictly(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("plan is not JSON as expected: %w", err)
	}
	end := decoder.InputOffset()
	if len(bytes.TrimSpace(text[end:])) > 0 {
		return fmt.Errorf("plan is followed by something else at byte %d", end)
	}
	return nil
}
