package markdown

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Page is one Markdown file.
type Page struct {
	// Path is relative to the module's root, with slashes.
	Path   string
	Blocks []Block
	Links  []Link
	// Spans are pieces of `code` within the text.
	Spans []Span
	// Anchors are what a link may name after #.
	Anchors map[string]bool
	// Prose are the lines outside fenced blocks, with their numbers.
	Prose []Line
}

// Line is a line of a page, with its number.
type Line struct {
	Number int
	Text   string
}

// Link is the target of a link or of an image.
type Link struct {
	Line   int
	Target string
}

// Span is a piece of code in the text.
type Span struct {
	Line int
	Text string
}

// Block is a fenced block.
type Block struct {
	// Page is the page's path. Line is the number of the line that opens the block.
	Page string
	Line int
	// Info is the text after the opening fence, such as "sh not-run".
	Info string
	// Section is the anchor of the level-2 heading above the block, or empty if there is none.
	Section string
	// Before is the paragraph above the block, its lines joined by spaces.
	Before string
	// Lines are the block's lines, without the indentation of the fence. The first one has number
	// Line+1.
	Lines []string
}

// At returns "path:line" for messages.
func (b Block) At() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Language returns the first word of the info string, or an empty string.
func (b Block) Language() string {
	language, _, _ := strings.Cut(b.Info, " ")
	return language
}

// Runs reports whether tests must run the block.
func (b Block) Runs() bool { return b.Info == "sh" }

// Kubeadm returns the name by which test/kubeadm runs the block on a real cluster, or an empty
// string.
func (b Block) Kubeadm() string {
	if words := strings.Fields(b.Info); len(words) == 3 && words[0] == "sh" && words[1] == "kubeadm" {
		return words[2]
	}
	return ""
}

var (
	fence    = regexp.MustCompile("^([ \t]*)(```+|~~~+)[ \t]*([^`]*?)[ \t]*$")
	heading  = regexp.MustCompile(`^ {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*$`)
	linkTo   = regexp.MustCompile(`\]\(([^()\s]+)(?:[ \t]+"[^"]*")?\)`)
	linkText = regexp.MustCompile(`!?\[([^\]]*)\]\([^()]*\)`)
	refersTo = regexp.MustCompile(`^ {0,3}\[[^\]]+\]:[ \t]*(\S+)`)
	explicit = regexp.MustCompile(`<[a-z]+[^>]*\b(?:id|name)="([^"]+)"`)
	source   = regexp.MustCompile(`<(?:img|source|a)[^>]*\b(?:src|srcset|href)="([^"]+)"`)
	span     = regexp.MustCompile("`([^`]+)`")
)

// Parse parses a page. A fenced block without an end is an error.
func Parse(path, text string) (Page, error) {
	p := Page{Path: path, Anchors: map[string]bool{}}
	var open *Block
	var indent, closing string
	var paragraph []string
	section := ""
	seen := map[string]int{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, "\r")
		match := fence.FindStringSubmatch(line)
		switch {
		case open != nil && match != nil && match[3] == "" && strings.HasPrefix(match[2], closing):
			p.Blocks = append(p.Blocks, *open)
			open, paragraph = nil, nil
		case open != nil:
			open.Lines = append(open.Lines, strings.TrimPrefix(line, indent))
		case match != nil:
			indent, closing = match[1], match[2]
			open = &Block{Page: path, Line: i + 1, Info: match[3], Section: section, Before: strings.Join(paragraph, " ")}
		case strings.TrimSpace(line) == "":
			p.Prose = append(p.Prose, Line{i + 1, ""})
			if !followsFence(text, i) {
				paragraph = nil
			}
		default:
			paragraph = append(paragraph, strings.TrimSpace(line))
			p.prose(i+1, line, seen)
			if match := heading.FindStringSubmatch(line); match != nil && strings.HasPrefix(strings.TrimSpace(line), "## ") {
				section = anchorOf(match[1])
			}
		}
	}
	if open != nil {
		return p, fmt.Errorf("%s: the fenced block has no end", open.At())
	}
	return p, nil
}

// followsFence reports whether the next line that is not blank opens a fence. The paragraph above
// then belongs to it.
func followsFence(text string, blank int) bool {
	for _, line := range strings.Split(text, "\n")[blank:] {
		if strings.TrimSpace(line) != "" {
			return fence.MatchString(line)
		}
	}
	return false
}

func (p *Page) prose(number int, line string, seen map[string]int) {
	p.Prose = append(p.Prose, Line{number, line})
	if match := heading.FindStringSubmatch(line); match != nil {
		anchor := anchorOf(match[1])
		if n := seen[anchor]; n > 0 {
			p.Anchors[fmt.Sprintf("%s-%d", anchor, n)] = true
		} else {
			p.Anchors[anchor] = true
		}
		seen[anchor]++
	}
	for _, match := range explicit.FindAllStringSubmatch(line, -1) {
		p.Anchors[match[1]] = true
	}
	for _, match := range span.FindAllStringSubmatch(line, -1) {
		p.Spans = append(p.Spans, Span{number, match[1]})
	}
	bare := span.ReplaceAllString(line, "code")
	for _, pattern := range []*regexp.Regexp{linkTo, refersTo, source} {
		for _, match := range pattern.FindAllStringSubmatch(bare, -1) {
			p.Links = append(p.Links, Link{number, match[1]})
		}
	}
}

// anchorOf returns GitHub's anchor for a heading.
func anchorOf(text string) string {
	text = linkText.ReplaceAllString(text, "$1")
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case r == ' ':
			b.WriteRune('-')
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Read reads all pages below the module's root, sorted by path.
func Read(root string) ([]Page, error) {
	var pages []Page
	add := func(name string) error {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		p, err := Parse(filepath.ToSlash(rel), string(text))
		pages = append(pages, p)
		return err
	}
	if err := add(filepath.Join(root, "README.md")); err != nil {
		return nil, err
	}
	for _, folder := range []string{"docs", "deploy"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".md") {
				return err
			}
			return add(name)
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(pages, func(a, b Page) int { return strings.Compare(a.Path, b.Path) })
	return pages, nil
}
