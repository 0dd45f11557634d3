package harness

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Log returns the output of the process and of earlier processes of the same name.
func (m *Manager) Log() (string, error) {
	text, err := os.ReadFile(m.LogPath())
	return string(text), err
}

// Logs returns a condition that holds once a line of the log contains all texts.
func (m *Manager) Logs(texts ...string) Condition {
	return func(context.Context) error {
		text, err := m.Log()
		if err == nil && !HasLine(text, texts...) {
			err = fmt.Errorf("the log of %s has no line with %q", m.Name(), texts)
		}
		return err
	}
}

// HasLine reports whether a line of text contains all parts.
func HasLine(text string, parts ...string) bool {
	for line := range strings.Lines(text) {
		missing := false
		for _, part := range parts {
			missing = missing || !strings.Contains(line, part)
		}
		if !missing {
			return true
		}
	}
	return false
}

var panicked = regexp.MustCompile(`(?m)^panic: |^goroutine \d+ \[running\]|Observed a panic|^fatal error: `)

// Panicked returns an error if the file is the log of a process that panicked.
func Panicked(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if at := panicked.FindIndex(text); at != nil {
		return fmt.Errorf("a panic in %s:\n%s", path, text[at[0]:min(len(text), at[0]+3000)])
	}
	return nil
}

// Tail returns the last bytes of a log, for failure output.
func Tail(path string) string {
	const size = 4000
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("end of %s:\n%s", path, text[max(0, len(text)-size):])
}
