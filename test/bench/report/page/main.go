// Page updates the generated parts of the pages below docs/benchmarks with the results of benchmark
// runs, and writes the data of the plots.
//
//	page [-dir docs/benchmarks] [-plots plots.json] result.json...
//
// Without results the pages say that nothing has been measured.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/flotilla-kube/flotilla/test/bench/report"
	"github.com/flotilla-kube/flotilla/test/bench/result"
)

func main() {
	dir := flag.String("dir", "docs/benchmarks", "directory of the pages, which must exist")
	plots := flag.String("plots", "", "file for the data of the plots, which hack/tools/plot reads; none if empty")
	flag.Parse()
	if err := run(*dir, *plots, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

func run(dir, plots string, names []string) error {
	var files []result.File
	for _, name := range names {
		file, err := read(name)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	r, err := report.New(files)
	if err != nil {
		return err
	}
	pictures := r.Plots()
	made := map[string]string{}
	for _, page := range report.Pages() {
		path := filepath.Join(dir, page)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if made[path], err = r.Page(page, string(text), pictures); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if plots != "" {
		written, err := json.MarshalIndent(append([]report.Plot{}, pictures...), "", "\t")
		if err != nil {
			return err
		}
		if err := os.WriteFile(plots, written, 0o644); err != nil {
			return err
		}
	}
	for path, text := range made {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// read is strict: it would otherwise silently drop the figure of an unknown field.
func read(name string) (result.File, error) {
	in, err := os.Open(name)
	if err != nil {
		return result.File{}, err
	}
	defer in.Close()
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	var file result.File
	if err := decoder.Decode(&file); err != nil {
		return result.File{}, fmt.Errorf("%s: %w", name, err)
	}
	return file, nil
}
