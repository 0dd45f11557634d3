package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"k8s.io/component-base/term"
)

// How often the table may change: in place for the eye, as lines for a log.
const (
	redrawPause = 200 * time.Millisecond
	linePause   = 2 * time.Second
)

// screen is the output: lines that stay, and below them, on a terminal, the table. Elsewhere the
// table is a line whenever it has changed. Its methods may be called from any goroutine.
type screen struct {
	out io.Writer
	// size returns the terminal's columns and rows; an error if it is none.
	size  func() (columns, rows int, err error)
	began time.Time

	mu    sync.Mutex
	table *table
	drawn int    // lines of the table that are on the terminal
	last  string // the line that was last written of the table
}

func newScreen(out io.Writer) *screen {
	return &screen{out: out, began: time.Now(), size: func() (int, int, error) { return term.TerminalSize(out) }}
}

// pause is how long to wait between two updates.
func (s *screen) pause() time.Duration {
	if _, _, err := s.size(); err != nil {
		return linePause
	}
	return redrawPause
}

// printf writes lines that stay.
func (s *screen) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	fmt.Fprintf(s.out, format+"\n", args...)
	s.draw()
}

// Write writes whole lines that stay, indented as what belongs to a step.
func (s *screen) Write(text []byte) (int, error) {
	for line := range bytes.Lines(text) {
		s.printf("        %s", bytes.TrimRight(line, "\n"))
	}
	return len(text), nil
}

// update shows the table as it is now.
func (s *screen) update(t table) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.table = &t
	if _, _, err := s.size(); err == nil {
		s.erase()
		s.draw()
	} else if line := t.line(); line != s.last {
		s.last = line
		fmt.Fprintf(s.out, "        %5.1f s  %s\n", time.Since(s.began).Seconds(), line)
	}
}

// clear takes the table away.
func (s *screen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.table = nil
}

// erase and draw take the table off the terminal and put it there; the caller holds mu.
func (s *screen) erase() {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
	}
	s.drawn = 0
}

func (s *screen) draw() {
	columns, rows, err := s.size()
	if err != nil || s.table == nil {
		return
	}
	// One column less: a full line makes some terminals begin another. What is above the top cannot
	// be erased.
	lines := append([]string{""}, s.table.lines(columns-1)...)
	lines = lines[:min(len(lines), max(rows-1, 0))]
	if len(lines) == 0 {
		return
	}
	fmt.Fprintln(s.out, strings.Join(lines, "\n"))
	s.drawn = len(lines)
}
