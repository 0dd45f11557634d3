package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func testScreen(columns, rows int, err error) (*screen, *strings.Builder) {
	var out strings.Builder
	s := newScreen(&out)
	s.size = func() (int, int, error) { return columns, rows, err }
	return s, &out
}

var oneMember = table{rows: []tableRow{{name: "flotilla-0", state: "active"}}}

// TestScreenOfTerminal draws the table below the lines, and again below the next.
func TestScreenOfTerminal(t *testing.T) {
	s, out := testScreen(60, 24, nil)
	s.printf("first")
	s.update(oneMember)
	s.printf("second")
	s.clear()
	s.printf("third")
	table := "\n" + strings.Join(oneMember.lines(59), "\n") + "\n"
	erase := "\x1b[5A\x1b[J"
	want := "first\n" + table + erase + "second\n" + table + erase + "third\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// TestScreenLowerThanTable checks a terminal lower than the table, which cannot erase what has
// scrolled away.
func TestScreenLowerThanTable(t *testing.T) {
	s, out := testScreen(60, 3, nil)
	s.update(oneMember)
	if got := strings.Count(out.String(), "\n"); got != 2 {
		t.Errorf("%d lines on 3 rows, want 2:\n%s", got, out)
	}
}

// TestScreenOfLog prints a line for each change, and no escape sequence.
func TestScreenOfLog(t *testing.T) {
	s, out := testScreen(0, 0, errors.New("no terminal"))
	s.printf("first")
	s.update(oneMember)
	s.update(oneMember)
	s.update(table{rows: []tableRow{{name: "flotilla-0", state: "killed"}}})
	s.clear()
	if _, err := s.Write([]byte("from elsewhere\nin lines\n")); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"first",
		"        T s  shards: flotilla-0 active 0; work: all done",
		"        T s  shards: flotilla-0 killed 0; work: all done",
		"        from elsewhere",
		"        in lines", "",
	}, "\n")
	got := regexp.MustCompile(` +[0-9.]+ s  `).ReplaceAllString(out.String(), "        T s  ")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}
