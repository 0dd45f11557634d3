package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// printer writes lines with the time since the start, and records how long each step took.
type printer struct {
	out   io.Writer
	began time.Time

	mu    sync.Mutex
	stage string
	rows  []row
}

// width is the width of the table's step column.
const width = 70

// row is one step of a stage and its duration.
type row struct {
	stage, what string
	took        time.Duration
}

func newPrinter(out io.Writer) *printer { return &printer{out: out, began: time.Now()} }

func (p *printer) begin(stage string) {
	p.mu.Lock()
	p.stage = stage
	p.mu.Unlock()
	p.printf("==> %s", stage)
}

func (p *printer) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range strings.SplitSeq(strings.TrimRight(fmt.Sprintf(format, args...), "\n"), "\n") {
		fmt.Fprintf(p.out, "%6.1f  %s\n", time.Since(p.began).Seconds(), line)
	}
}

// step runs a step of the stage and prints how long it took.
func (p *printer) step(what string, do func() error) error {
	began := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	p.took(what, time.Since(began))
	return nil
}

// inOrder runs the steps until the first error.
func inOrder(steps ...func() error) error {
	for _, do := range steps {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// took records a duration that was measured elsewhere.
func (p *printer) took(what string, took time.Duration) {
	if len(what) > width {
		what = what[:width-1] + "…"
	}
	p.mu.Lock()
	p.rows = append(p.rows, row{p.stage, what, took})
	p.mu.Unlock()
	p.printf("%-70s %6.1f s", what, took.Seconds())
}

func (p *printer) table() {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "\n%-12s %-70s %8s\n", "STAGE", "STEP", "SECONDS")
	for _, r := range p.rows {
		fmt.Fprintf(p.out, "%-12s %-70s %8.1f\n", r.stage, r.what, r.took.Seconds())
	}
	fmt.Fprintf(p.out, "%-12s %-70s %8.1f\n", "", "all", time.Since(p.began).Seconds())
}

// logFile opens a file in the working folder for a command's output.
func logFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
}
