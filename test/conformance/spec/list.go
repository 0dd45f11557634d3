package spec

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Listed is a spec as `e2e.test --list-tests` prints it.
type Listed struct {
	// File is the source file below test/e2e, such as "apps/job.go".
	File string
	Text string
}

// listed matches a spec in the listing. The path is the module cache's, shortened by -trimpath or
// not.
var listed = regexp.MustCompile(`^\s+\S*/test/e2e/(\S+\.go):\d+: (.*\S)\s*$`)

// ParseListing reads the output of `e2e.test --list-tests`. It skips other lines, such as log
// lines. A listing without a spec is an error.
func ParseListing(r io.Reader) ([]Listed, error) {
	var specs []Listed
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if m := listed.FindStringSubmatch(lines.Text()); m != nil {
			specs = append(specs, Listed{File: m[1], Text: m[2]})
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("listing of specs: %w", err)
	}
	if len(specs) == 0 {
		return nil, fmt.Errorf("listing of specs: no line is of the form <file>:<line>: <text>")
	}
	return specs, nil
}

// ReadList reads a list with one spec per line. Lines that begin with "#" are comments. An empty
// list is an error, and so is a duplicate spec.
func ReadList(r io.Reader) ([]string, error) {
	var texts []string
	seen := map[string]bool{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		switch {
		case text == "" || strings.HasPrefix(text, "#"):
		case seen[text]:
			return nil, fmt.Errorf("list of specs: %q is in it twice", text)
		default:
			seen[text] = true
			texts = append(texts, text)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("list of specs: %w", err)
	}
	if len(texts) == 0 {
		return nil, fmt.Errorf("list of specs: there is no spec in it")
	}
	return texts, nil
}

// WriteList writes a sorted list below a header, whose lines become comments.
func WriteList(w io.Writer, header string, texts []string) error {
	var b strings.Builder
	for line := range strings.Lines(header) {
		b.WriteString(strings.TrimSpace("# "+line) + "\n")
	}
	for _, text := range slices.Sorted(slices.Values(texts)) {
		b.WriteString(text + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// suite is the name of upstream's suite. ginkgo puts it before a spec's text when it matches the
// text.
const suite = "Kubernetes e2e suite"

// focusLimit bounds the length of one expression: Linux takes no argument of 128 KiB.
const focusLimit = 60_000

// Focus returns values for ginkgo's --focus that together select exactly the specs with these
// texts.
func Focus(texts []string) []string {
	var all []string
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			all = append(all, "^"+suite+" (?:"+b.String()+")$")
			b.Reset()
		}
	}
	for _, text := range texts {
		quoted := regexp.QuoteMeta(text)
		if b.Len()+len(quoted) > focusLimit {
			flush()
		}
		if b.Len() > 0 {
			b.WriteByte('|')
		}
		b.WriteString(quoted)
	}
	flush()
	return all
}

var sig = regexp.MustCompile(`\[(sig-[a-z-]+)\]`)

// SIG returns the special interest group of a spec, such as "sig-apps", or "none" if its text names
// none.
func SIG(text string) string {
	if m := sig.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return "none"
}
