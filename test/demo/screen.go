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

// How often the table may change: in place on a terminal, or as lines of a log.
const (
	redrawPause = 200 * time.Millisecond
	linePause   = 2 * time.Second
)

// screen is the output: permanent lines and, below them on a terminal, the table. Elsewhere the
// table is one line whenever it has changed. Its methods may be called from any goroutine.
type screen struct {
	out io.Writer
	// size returns the terminal's columns and rows, or an error if there is no terminal.
	size  func() (columns, rows int, err error)
	began time.Time

	mu    sync.Mutex
	table *table
	drawn int    // lines of the table that are on the terminal
	last  string // the last line printed for the table
}

func newScreen(out io.Writer) *screen {
	return &screen{out: out, began: time.Now(), size: func() (int, int, error) { return term.TerminalSize(out) }}
}

// pause returns how long to wait between two updates.
func (s *screen) pause() time.Duration {
	if _, _, err := s.size(); err != nil {
		return linePause
	}
	return redrawPause
}

// printf prints permanent lines.
func (s *screen) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	fmt.Fprintf(s.out, format+"\n", args...)
	s.draw()
}

// Write prints whole permanent lines, indented below a step.
func (s *screen) Write(text []byte) (int, error) {
	for line := range bytes.Lines(text) {
		s.printf("        %s", bytes.TrimRight(line, "\n"))
	}
	return len(text), nil
}

// update shows the current table.
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

// clear removes the table.
func (s *screen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	s.table = nil
}

// erase removes the table from the terminal and draw puts it there; the caller holds mu.
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
	// One column less, because a full line makes some terminals begin another. What has scrolled
	// off the top cannot be erased.
	lines := append([]string{""}, s.table.lines(columns-1)...)
	lines = lines[:min(len(lines), max(rows-1, 0))]
	if len(lines) == 0 {
		return
	}
	fmt.Fprintln(s.out, strings.Join(lines, "\n"))
	s.drawn = len(lines)
}
