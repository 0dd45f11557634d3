package measure

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Sample is one line of Prometheus' text format.
type Sample struct {
	Name   string
	Labels map[string]string
	Value  float64
}

// Metrics are the samples of some families, by name: a histogram has those of name_bucket, name_sum
// and name_count.
type Metrics map[string][]Sample

// ParseMetrics reads Prometheus' text format and keeps the samples of these names.
func ParseMetrics(r io.Reader, names ...string) (Metrics, error) {
	metrics := Metrics{}
	wanted := map[string]bool{}
	for _, name := range names {
		wanted[name] = true
	}
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		name := line[:max(strings.IndexAny(line, "{ "), 0)]
		if !wanted[name] {
			continue
		}
		sample, err := parseSample(name, line[len(name):])
		if err != nil {
			return nil, fmt.Errorf("metrics: %q: %w", line, err)
		}
		metrics[name] = append(metrics[name], sample)
	}
	return metrics, scanner.Err()
}

// parseSample reads what follows the name: `{a="b",c="d"} 1` or ` 1`.
func parseSample(name, rest string) (Sample, error) {
	s := Sample{Name: name, Labels: map[string]string{}}
	if inner, found := strings.CutPrefix(rest, "{"); found {
		for rest = inner; !strings.HasPrefix(rest, "}"); rest = strings.TrimPrefix(rest, ",") {
			label, after, found := strings.Cut(rest, "=")
			if !found {
				return s, fmt.Errorf("a label without a value")
			}
			quoted, err := strconv.QuotedPrefix(after)
			if err != nil {
				return s, fmt.Errorf("label %s: %w", label, err)
			}
			if s.Labels[label], err = strconv.Unquote(quoted); err != nil {
				return s, fmt.Errorf("label %s: %w", label, err)
			}
			rest = after[len(quoted):]
		}
		rest = rest[1:]
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return s, fmt.Errorf("no value")
	}
	var err error
	s.Value, err = strconv.ParseFloat(fields[0], 64)
	return s, err
}

// Sum adds up the samples of a name for which keep returns true; nil means all.
func (m Metrics) Sum(name string, keep func(labels map[string]string) bool) float64 {
	total := 0.0
	for _, s := range m[name] {
		if keep == nil || keep(s.Labels) {
			total += s.Value
		}
	}
	return total
}

// SumBy adds up the samples of a name by the key of their labels, and leaves out those with an
// empty key.
func (m Metrics) SumBy(name string, key func(labels map[string]string) string) map[string]float64 {
	sums := map[string]float64{}
	for _, s := range m[name] {
		if k := key(s.Labels); k != "" {
			sums[k] += s.Value
		}
	}
	return sums
}

// Histogram adds up the buckets of all series of a histogram, whatever their labels.
func (m Metrics) Histogram(name string) Histogram {
	h := Histogram{}
	for _, s := range m[name+"_bucket"] {
		if bound, err := strconv.ParseFloat(s.Labels["le"], 64); err == nil {
			h[bound] += s.Value
		}
	}
	return h
}
