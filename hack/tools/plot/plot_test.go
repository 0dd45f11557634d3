package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSample(t *testing.T) {
	out := t.TempDir()
	if err := run("testdata/sample.json", out, true); err != nil {
		t.Fatal(err)
	}
	for name, wants := range map[string][]string{
		"throughput-sample": {"replicas", "multiple of stock", "no limits", ">stock<", ">4<"},
		"memory-sample":     {"pods", "MiB", "4 replicas, gate on", ">50,000<"},
		"members-sample":    {"received, MiB", "cluster groups", "ranges of namespaces"},
	} {
		text, err := os.ReadFile(filepath.Join(out, name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s.svg has no %q", name, want)
			}
		}
		if info, err := os.Stat(filepath.Join(out, name+".png")); err != nil || info.Size() == 0 {
			t.Errorf("%s.png: %v", name, err)
		}
	}
}

func TestRefuses(t *testing.T) {
	for want, text := range map[string]string{
		"must be of small letters": `[{"file": "../x", "series": [{"points": [{"x": 1}]}]}]`,
		"one or the other":         `[{"file": "x"}]`,
		"must have points":         `[{"file": "x", "series": [{"name": "a"}]}]`,
		"one of 1 categories":      `[{"file": "x", "categories": ["a"], "bars": [{"points": [{"x": 1}]}]}]`,
		"unknown field":            `[{"file": "x", "colour": "red"}]`,
	} {
		name := filepath.Join(t.TempDir(), "in.json")
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := run(name, t.TempDir(), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", text, err, want)
		}
	}
}
