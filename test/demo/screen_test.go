package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flotilla-kube/flotilla/internal/cli"
)

func testScreen(columns, rows int) (*screen, *strings.Builder) {
	var out strings.Builder
	s := newScreen(&out)
	s.size = func() (int, int) { return columns, rows }
	return s, &out
}

// TestScreenOfTerminal draws the status below the lines, and again below the next.
func TestScreenOfTerminal(t *testing.T) {
	s, out := testScreen(20, 60)
	fleet := smallFleet(t).fleet()
	s.printf("first")
	s.update(fleet, "deployments 2/4, jobs 1/1")
	s.printf("second")
	s.showStatus(fleet) // is there already
	s.clear()
	s.printf("third")
	lines := cli.StatusLines(out, fleet, 60)
	below := "\n$ flotilla status\n" + strings.Join(lines, "\n") + "\n\nWork: deployments 2/\n"
	erase := fmt.Sprintf("\x1b[%dA\x1b[J", strings.Count(below, "\n"))
	want := "first\n" + below + erase + "second\n" + below + erase + "third\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if !strings.Contains(below, "flotilla-1  active") {
		t.Errorf("this is no status:\n%s", below)
	}
}

// TestScreenHeights checks that there is room for the steps above the status. What has scrolled
// away a terminal cannot erase.
func TestScreenHeights(t *testing.T) {
	for rows, want := range map[int]int{60: 38, 24: 16, 3: 2} {
		s, out := testScreen(60, rows)
		s.update(smallFleet(t).fleet(), "all done")
		if got := strings.Count(out.String(), "\n"); got != want {
			t.Errorf("%d lines on %d rows, want %d:\n%s", got, rows, want, out)
		}
	}
}

// TestScreenOfLog prints a line for each change of the work, the status when told to, and no escape
// sequence.
func TestScreenOfLog(t *testing.T) {
	s, out := testScreen(0, 0)
	fleet := smallFleet(t).fleet()
	s.printf("first")
	s.update(fleet, "jobs 1/2")
	s.update(fleet, "jobs 1/2")
	s.update(fleet, "all done")
	s.clear()
	s.showStatus(fleet)
	if _, err := s.Write([]byte("from elsewhere\nin lines\n")); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"first",
		"        T s  Work: jobs 1/2",
		"        T s  Work: all done",
		"", "$ flotilla status", strings.Join(cli.StatusLines(out, fleet, 60), "\n"),
		"        from elsewhere",
		"        in lines", "",
	}, "\n")
	got := regexp.MustCompile(` +[0-9.]+ s  `).ReplaceAllString(out.String(), "        T s  ")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}
