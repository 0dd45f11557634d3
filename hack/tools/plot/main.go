// Plot draws the results of benchmarks. It reads what test/bench/report writes, a JSON list of
// plots, and writes a file for each, as SVG, and as PNG on request. The same input gives the same
// files.
//
//	plot [-out folder] [-png] plots.json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// picture is test/bench/report's Plot; see there.
type picture struct {
	File       string     `json:"file"`
	Title      string     `json:"title"`
	X          string     `json:"x"`
	Y          string     `json:"y"`
	Reference  *reference `json:"reference"`
	Series     []series   `json:"series"`
	Categories []string   `json:"categories"`
	Bars       []bars     `json:"bars"`
}

type reference struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

type series struct {
	Name   string    `json:"name"`
	Points points    `json:"points"`
	Line   []float64 `json:"line"`
}

type bars struct {
	Name   string `json:"name"`
	Points points `json:"points"`
}

type point struct {
	X    float64 `json:"x"`
	Y    float64 `json:"y"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// fileName keeps pictures in the directory.
var fileName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)

func main() {
	out := flag.String("out", ".", "directory for the pictures, which must exist")
	png := flag.Bool("png", false, "also write PNG files")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: plot [-out folder] [-png] plots.json")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *out, *png); err != nil {
		fmt.Fprintln(os.Stderr, "plot:", err)
		os.Exit(1)
	}
}

func run(in, out string, png bool) error {
	pictures, err := read(in)
	if err != nil {
		return err
	}
	kinds := []string{"svg"}
	if png {
		kinds = append(kinds, "png")
	}
	for _, p := range pictures {
		for _, kind := range kinds {
			name := filepath.Join(out, p.File+"."+kind)
			if err := p.write(name, kind); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			fmt.Println(name)
		}
	}
	return nil
}

// read is strict: an unknown field would be missing in the picture.
func read(name string) ([]picture, error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	var pictures []picture
	if err := decoder.Decode(&pictures); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for i, p := range pictures {
		if err := p.check(); err != nil {
			return nil, fmt.Errorf("%s: plot %d: %w", name, i+1, err)
		}
	}
	return pictures, nil
}

func (p picture) check() error {
	if !fileName.MatchString(p.File) {
		return fmt.Errorf("file is %q, must be of small letters, digits, '-' and '.'", p.File)
	}
	if (len(p.Series) == 0) == (len(p.Bars) == 0) {
		return fmt.Errorf("%s has %d series and %d bars, must have one or the other", p.File, len(p.Series), len(p.Bars))
	}
	for _, s := range p.Series {
		if len(s.Points) == 0 || len(s.Line) != 0 && len(s.Line) != 2 {
			return fmt.Errorf("%s: series %q has %d points and a line of %d numbers, must have points and 0 or 2 numbers", p.File, s.Name, len(s.Points), len(s.Line))
		}
	}
	for _, b := range p.Bars {
		for _, at := range b.Points {
			if i := int(at.X); float64(i) != at.X || i < 0 || i >= len(p.Categories) {
				return fmt.Errorf("%s: bars %q have x %v, must be one of %d categories", p.File, b.Name, at.X, len(p.Categories))
			}
		}
	}
	return nil
}
