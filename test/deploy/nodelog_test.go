package deploy

import (
	"io"
	"strings"
	"sync"
	"testing"
)

type nodeLog struct {
	mu   sync.Mutex
	text strings.Builder
	out  io.Writer
}

// Write implements io.Writer.
func (l *nodeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	return l.out.Write(p)
}

// requireOrder requires that every process that ended did so on its own after being told to, within
// its grace period, with status 0. It returns how many ended.
func (l *nodeLog) requireOrder(t *testing.T) int {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.text.String()) {
		if !strings.Contains(line, ": ended with ") {
			continue
		}
		n++
		if !strings.HasSuffix(line, ": ended with 0 stopped\n") {
			t.Errorf("a process did not end in good order: %s", line)
		}
	}
	return n
}
