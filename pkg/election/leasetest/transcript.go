package leasetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Transcript is what has happened since Begin, a line each. Its methods are safe for concurrent
// use.
type Transcript struct {
	Begin time.Time

	mu    sync.Mutex
	lines []string
}

// Logf adds a line, after the second.
func (t *Transcript) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf("%.1f ", time.Since(t.Begin).Seconds())+fmt.Sprintf(format, args...))
}

// Lines returns the lines since the last call of Compare.
func (t *Transcript) Lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.lines)
}

// Compare returns in words how the lines since the last call differ from those wanted; empty if
// they do not. Those wanted may be indented.
func (t *Transcript) Compare(want string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var wanted []string
	for line := range strings.Lines(want) {
		if line = strings.TrimSpace(line); line != "" {
			wanted = append(wanted, line)
		}
	}
	a, b := strings.Join(wanted, "\n"), strings.Join(t.lines, "\n")
	t.lines = nil
	if a == b {
		return ""
	}
	return fmt.Sprintf("Transcript is not as wanted.\nwant:\n%s\ngot:\n%s", a, b)
}
