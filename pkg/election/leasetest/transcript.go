package leasetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Transcript records what has happened since Begin, one line per event. Its methods are safe for
// concurrent use.
type Transcript struct {
	Begin time.Time

	mu    sync.Mutex
	lines []string
}

// Logf adds a line that begins with the seconds since Begin.
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

// Compare describes how the lines since the last call differ from want; empty if they do not. Lines
// of want may be indented.
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
