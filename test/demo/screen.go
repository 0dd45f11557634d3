package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/component-base/term"

	"github.com/flotilla-kube/flotilla/internal/cli"
	"github.com/flotilla-kube/flotilla/internal/status"
)

const (
	// How often the fleet is drawn on a terminal, and how often elsewhere a line says what work is
	// unfinished.
	redrawPause = 200 * time.Millisecond
	linePause   = 2 * time.Second

	// stepRows is how many rows of a terminal what 'flotilla status' prints leaves to the rest:
	// all lines of a step, and those around it.
	stepRows = 12
)

// screen is the output: permanent lines and, below them on a terminal, what 'flotilla status'
// prints of the fleet, and what work is unfinished. Elsewhere a line says the latter whenever it
// has changed. Its methods may be called from any goroutine.
type screen struct {
	out io.Writer
	// size returns the terminal's columns and rows, 0 if there is no terminal.
	size  func() (columns, rows int)
	began time.Time

	mu    sync.Mutex
	below []string // lines below the permanent ones
	drawn int      // how many of them are on the terminal
	last  string   // the last line about the work, without a terminal
}

func newScreen(out io.Writer) *screen {
	return &screen{out: out, began: time.Now(), size: func() (int, int) {
		columns, rows, _ := term.TerminalSize(out) // 0 with an error
		return columns, rows
	}}
}

func (s *screen) isTerminal() bool {
	columns, _ := s.size()
	return columns > 0
}

// pause returns how long to wait between two updates.
func (s *screen) pause() time.Duration {
	if s.isTerminal() {
		return redrawPause
	}
	return linePause
}

// printf prints permanent lines.
func (s *screen) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.print(fmt.Sprintf(format+"\n", args...))
}

// Write prints whole permanent lines, indented below a step.
func (s *screen) Write(text []byte) (int, error) {
	for line := range bytes.Lines(text) {
		s.printf("        %s", bytes.TrimRight(line, "\n"))
	}
	return len(text), nil
}

// showStatus prints what 'flotilla status' prints of the fleet, unless a terminal shows it anyway.
func (s *screen) showStatus(fleet *status.Reading) {
	if !s.isTerminal() {
		s.printf("%s", strings.Join(s.statusLines(fleet, math.MaxInt), "\n"))
	}
}

// statusLines returns what 'flotilla status' prints of the fleet, in at most that many lines, below
// the command.
func (s *screen) statusLines(fleet *status.Reading, most int) []string {
	return slices.Concat([]string{"", "$ flotilla status"}, cli.StatusLines(s.out, fleet, most))
}

// update shows the fleet and the unfinished work.
func (s *screen) update(fleet *status.Reading, unfinished string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := "Work: " + unfinished
	columns, rows := s.size()
	switch {
	case columns > 0:
		lines := append(s.statusLines(fleet, rows-stepRows), "", line[:min(len(line), columns)])
		// What has scrolled off the top cannot be erased.
		s.below = lines[:min(len(lines), max(rows-1, 0))]
		s.print("")
	case line != s.last:
		s.last = line
		s.print(fmt.Sprintf("        %5.1f s  %s\n", time.Since(s.began).Seconds(), line))
	}
}

// clear removes everything below the permanent lines.
func (s *screen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.below = nil
	s.print("")
}

// print writes a permanent text, and again what is below, in one piece so that nothing flickers;
// the caller holds mu.
func (s *screen) print(text string) {
	if s.drawn > 0 {
		text = fmt.Sprintf("\x1b[%dA\x1b[J", s.drawn) + text
	}
	for _, line := range s.below {
		text += line + "\n"
	}
	s.drawn = len(s.below)
	fmt.Fprint(s.out, text)
}
