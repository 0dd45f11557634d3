package cli

import (
	"io"
	"os"
	"regexp"
	"strings"

	"k8s.io/component-base/term"
)

// screen is where a table is shown: a terminal has a width and may have colours, anything else has neither.
type screen struct {
	// width is in characters, 0 for any; height in lines.
	width, height int
	colour        bool
}

// screenOf returns what is known of the writer. NO_COLOR and TERM=dumb turn colours off.
func screenOf(w io.Writer) screen {
	width, height, err := term.TerminalSize(w)
	if err != nil || width <= 0 {
		return screen{}
	}
	return screen{width: width, height: height, colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// isTerminal tells whether somebody watches.
func (s screen) isTerminal() bool { return s.width > 0 }

const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	bold   = "\x1b[1m"
	plain  = "\x1b[0m"
)

// paints are what is coloured: the severity that a line begins with, and states, which stand alone in a cell or begin the last.
var paints = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?m)^()(Error:)`), bold + red},
	{regexp.MustCompile(`(?m)^()(Warning:)`), bold + yellow},
	{regexp.MustCompile(`(?m)^()(All is well)`), green},
	{regexp.MustCompile(`(?m)(  )(orphan|silent)(?:  |,|$)`), red},
	{regexp.MustCompile(`(?m)(  )(gated|older|preparing|waiting|starting|joining|leaving|drained|active \(drained\))(?:  |,|$)`), yellow},
}

// fit returns a text as it is to be shown: lines cut to the width, and coloured. The text has no escape sequences.
func (s screen) fit(text string) string {
	if s.width > 0 {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			lines[i] = s.cut(line)
		}
		text = strings.Join(lines, "\n")
	}
	if !s.colour {
		return text
	}
	for _, p := range paints {
		text = p.what.ReplaceAllStringFunc(text, func(match string) string {
			parts := p.what.FindStringSubmatchIndex(match)
			return match[:parts[4]] + p.with + match[parts[4]:parts[5]] + plain + match[parts[5]:]
		})
	}
	return text
}

// cut cuts a table's line to the width. Findings are never cut: the terminal wraps them.
func (s screen) cut(line string) string {
	if isFinding(line) {
		return line
	}
	if runes := []rune(line); len(runes) > s.width {
		return string(runes[:s.width-1]) + "…"
	}
	return line
}

func isFinding(line string) bool {
	return strings.HasPrefix(line, "Error: ") || strings.HasPrefix(line, "Warning: ") || strings.HasPrefix(line, "Note: ")
}

// wrap breaks findings into lines of the width.
func (s screen) wrap(text string) string {
	const indent = "  "
	if s.width <= 2*len(indent) {
		return text
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		runes := []rune(line)
		for isFinding(line) && len(runes) > s.width {
			lines = append(lines, string(runes[:s.width]))
			runes = append([]rune(indent), runes[s.width:]...)
		}
		lines = append(lines, string(runes))
	}
	return strings.Join(lines, "\n")
}
