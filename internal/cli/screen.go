package cli

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/component-base/term"
)

// screen is where a table is shown: a terminal has a width and may have colours and links, anything
// else has none of these.
type screen struct {
	// width is in characters, 0 for any; height in lines.
	width, height int
	colour, links bool
}

// screenOf returns what is known about the writer. NO_COLOR and TERM=dumb turn colours and links
// off.
func screenOf(w io.Writer) screen {
	width, height, err := term.TerminalSize(w)
	if err != nil || width <= 0 {
		return screen{}
	}
	return screen{
		width: width, height: height,
		colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb",
		links:  supportsLinks(os.Getenv),
	}
}

// supportsLinks reports whether the terminal in the environment shows links (OSC 8). A terminal
// cannot be asked, and some print the address as garbage, so only terminals known to support links
// get them, unless FORCE_HYPERLINK says otherwise: 0 turns links off, anything else on.
func supportsLinks(env func(string) string) bool {
	name := env("TERM")
	if env("NO_COLOR") != "" || name == "dumb" {
		return false
	}
	if force := env("FORCE_HYPERLINK"); force != "" {
		return force != "0"
	}
	if name == "" || name == "linux" { // the console of a machine, where nothing can be clicked
		return false
	}
	// screen and tmux pass on the variables of the terminal around them, and may drop its links.
	if strings.HasPrefix(name, "screen") || strings.HasPrefix(name, "tmux") {
		return false
	}
	// GNOME Terminal and others, since VTE 0.50.
	if vte, err := strconv.Atoi(env("VTE_VERSION")); err == nil && vte >= 5000 {
		return true
	}
	set := func(variable string) bool { return env(variable) != "" }
	variables := []string{"WT_SESSION", "KONSOLE_VERSION", "KITTY_WINDOW_ID", "DOMTERM"}
	programs := []string{"iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "Tabby"}
	names := []string{"xterm-kitty", "xterm-ghostty", "alacritty", "foot", "contour", "wezterm"}
	return slices.ContainsFunc(variables, set) ||
		slices.Contains(programs, env("TERM_PROGRAM")) || slices.Contains(names, name)
}

// seeAlso begins a line with only an address.
const seeAlso = "  see "

// link is a text that opens an address when it is clicked.
func link(address, text string) string {
	return "\x1b]8;;" + address + "\x1b\\" + text + "\x1b]8;;\x1b\\"
}

// isTerminal reports whether the output goes to a terminal.
func (s screen) isTerminal() bool { return s.width > 0 }

const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	bold   = "\x1b[1m"
	plain  = "\x1b[0m"
)

// paints are what is coloured: the severity that a line begins with, and states, which stand alone
// in a cell or begin the last one.
var paints = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?m)^()(Error:)`), bold + red},
	{regexp.MustCompile(`(?m)^()(Warning:)`), bold + yellow},
	{regexp.MustCompile(`(?m)^()(All is well)`), green},
	{regexp.MustCompile(`(?m)(  )(unowned|silent)(?:  |,|$)`), red},
	{regexp.MustCompile(`(?m)(  )(locked-out|older|waiting|starting|joining|leaving|drained|active \(drained\))(?:  |,|$)`), yellow},
}

// fit returns a text as it is shown: lines cut to the width, coloured, and with links. The text has
// no escape sequences, except the links of wrap.
func (s screen) fit(text string) string {
	if s.width > 0 {
		lines := strings.Split(text, "\n")
		for i, line := range lines {
			lines[i] = s.cut(line)
		}
		text = strings.Join(lines, "\n")
	}
	if s.links {
		text = address.ReplaceAllStringFunc(text, func(line string) string {
			to := strings.TrimPrefix(line, seeAlso)
			return seeAlso + link(to, to)
		})
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

// address is a line of seeAlso.
var address = regexp.MustCompile(`(?m)^` + seeAlso + `https://\S+$`)

// cut cuts a table's line to the width. Findings and addresses are never cut: the terminal wraps
// them.
func (s screen) cut(line string) string {
	if isFinding(line) || strings.HasPrefix(line, seeAlso) {
		return line
	}
	if runes := []rune(line); len(runes) > s.width {
		return string(runes[:s.width-1]) + "…"
	}
	return line
}

// fewestLines is the lowest terminal that a text is shortened for.
const fewestLines = 4

// lines returns a text as it is redrawn: each line is one on the terminal. If there are more than
// most, their middle is left out: findings are at the end.
func (s screen) lines(text string, most int) []string {
	lines := strings.Split(strings.TrimRight(s.fit(s.wrap(text)), "\n"), "\n")
	if most >= fewestLines && len(lines) > most {
		keep := most / 2
		lines = slices.Concat(lines[:most-keep-1], []string{"..."}, lines[len(lines)-keep:])
	}
	return lines
}

func isFinding(line string) bool {
	return strings.HasPrefix(line, "Error: ") || strings.HasPrefix(line, "Warning: ") || strings.HasPrefix(line, "Note: ")
}

// wrap breaks findings and addresses into lines of the width. A link needs only one: its address is
// not shown.
func (s screen) wrap(text string) string {
	const indent = "  "
	if s.width <= 2*len(seeAlso) {
		return text
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		runes := []rune(line)
		see := address.MatchString(line)
		if see && s.links && len(runes) > s.width {
			shown := string(runes[len(seeAlso):s.width-1]) + "…"
			lines = append(lines, seeAlso+link(strings.TrimPrefix(line, seeAlso), shown))
			continue
		}
		for (see || isFinding(line)) && len(runes) > s.width {
			lines = append(lines, string(runes[:s.width]))
			runes = append([]rune(indent), runes[s.width:]...)
		}
		lines = append(lines, string(runes))
	}
	return strings.Join(lines, "\n")
}
