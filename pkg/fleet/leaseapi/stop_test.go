package leaseapi

import (
	"strings"
	"testing"
	"time"
)

func TestParseStop(t *testing.T) {
	since := time.Date(2026, 11, 24, 8, 50, 0, 0, time.UTC)
	for text, want := range map[string]Stop{
		"2026-11-24T08:50:00Z by alice@laptop": {since, "alice@laptop"},
		"2026-11-24T08:50:00Z":                 {since, ""},
		"2026-11-24T09:50:00+01:00 by a b":     {since, "a b"},
	} {
		got, err := ParseStop(text)
		if err != nil || !got.Since.Equal(want.Since) || got.By != want.By {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		again, err := ParseStop(got.Annotation())
		if err != nil || !again.Since.Equal(want.Since) || again.By != want.By {
			t.Errorf("%q, written again: %v, %v", text, again, err)
		}
	}
	for _, text := range []string{
		"", "true", "yesterday by alice", "2026-11-24 by alice", "2026-11-24T08:50:00Z by ", "2026-11-24T08:50:00Z alice",
		"2026-11-24T08:50:00Z by al\x1b[2Jice", "2026-11-24T08:50:00Z by a\nb", "2026-11-24T08:50:00Z by " + strings.Repeat("a", 257),
	} {
		if got, err := ParseStop(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
