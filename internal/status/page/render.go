package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the template and the style sheet
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

//go:embed page.html
var source string

//go:embed page.css
var css string

var (
	page = template.Must(template.New("page").Funcs(functions).Parse(source))
	// policy lets a browser apply only the page's style sheet, identified by its hash: no script,
	// no image, no frame, no form, no connection.
	policy = "default-src 'none'; style-src '" + styleHash() + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// sheet is the style sheet as the template writes it.
func sheet() template.CSS { return template.CSS(css) }

// styleHash is computed from a page, so that it is the hash of what browsers receive.
func styleHash() string {
	var b bytes.Buffer
	if err := render(&b, empty("", Self{}, time.Time{}), 0); err != nil {
		panic("page: the template fails on an empty document: " + err.Error())
	}
	_, rest, _ := strings.Cut(b.String(), "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	sum := sha256.Sum256([]byte(style))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// content is what the template gets: the document, and how it is drawn.
type content struct {
	Document
	Refresh int
	Palette palette
	// Pictures are those of the rings of namespaces, Groups the rings that have none.
	Pictures []picture
	Groups   []Ring
	Counts   counts

	shown map[string]template.HTML
}

// drawn is what the template of a picture gets.
type drawn struct {
	Content content
	Picture picture
}

// counts are for the page's head.
type counts struct{ Live, Shards, Running, Moving, Unowned int }

// who is a member, or another holder that a Lease names, as the template draws it.
type who struct {
	Name, Tag       string
	Colour, Pattern int
	Known           bool
}

// Who returns how to draw a member.
func (c content) Who(name string) who {
	_, known := c.Palette[name]
	return who{Name: name, Tag: c.Palette.tag(name), Colour: c.Palette.colour(name), Pattern: c.Palette.pattern(name), Known: known}
}

// Show returns a member as it is shown in text. There are few members, and each is on the page
// hundreds of times.
func (c content) Show(name string) (template.HTML, error) {
	if shown, ok := c.shown[name]; ok {
		return shown, nil
	}
	var b strings.Builder
	if err := page.ExecuteTemplate(&b, "who", c.Who(name)); err != nil {
		return "", err
	}
	c.shown[name] = template.HTML(b.String())
	return c.shown[name], nil
}

// render writes a document as HTML that reloads itself every refresh seconds; 0 is never.
func render(w io.Writer, d Document, refresh int) error {
	c := content{Document: d, Refresh: refresh, Palette: newPalette(d), shown: map[string]template.HTML{}}
	for _, m := range d.Members {
		if isLive(m) {
			c.Counts.Live++
		}
	}
	for _, r := range d.Rings {
		if r.Scope == shard.ScopeNamespaced {
			c.Pictures = append(c.Pictures, newPicture(r))
		} else {
			c.Groups = append(c.Groups, r)
		}
		c.Counts.Shards += len(r.Shards)
		c.Counts.Running += countState(r, status.StateRunning)
		c.Counts.Unowned += countState(r, status.StateUnowned)
		for _, s := range r.Shards {
			if s.MovingTo != "" {
				c.Counts.Moving++
			}
		}
	}
	return page.Execute(w, c)
}

var functions = template.FuncMap{
	"age":       age,
	"clip":      clip,
	"count":     count,
	"cores":     cores,
	"part":      status.PercentOf,
	"percent":   status.Percent,
	"megabytes": megabytes,
	"id":        func(name string) string { return "s-" + strings.ReplaceAll(name, "/", "-") },
	"join":      strings.Join,
	"mood":      mood,
	"name":      nameOf,
	"sheet":     sheet,
	"stamp":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") + " UTC" },
	"clock":     func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"rfc":       func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"title":     title,
	"gap":       gap,
	"plural":    status.Plural,
	"pair":      func(c content, p picture) drawn { return drawn{c, p} },
}

// longest is shown for anything longer, since nobody knows how long ago it was.
const longest = 100 * 365 * 24 * time.Hour

// age returns seconds for people: tenths where they matter, else as the operator's commands print
// them.
func age(seconds any) string {
	var s float64
	switch v := seconds.(type) {
	case float64:
		s = v
	case *float64:
		if v == nil {
			return ""
		}
		s = *v
	}
	if s < 10 {
		return strconv.FormatFloat(s, 'f', 1, 64) + "s"
	}
	return status.Short(time.Duration(min(s, longest.Seconds()) * float64(time.Second)))
}

// gap returns how long a shard was without a holder, in milliseconds where these matter.
func gap(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	if *seconds < 0.001 {
		return "<1 ms"
	}
	if *seconds < 1 {
		return strconv.FormatFloat(*seconds*1000, 'f', 0, 64) + " ms"
	}
	return age(*seconds)
}

// clip limits a text that anybody may have written, so that it fits on the page; the JSON has all
// of it.
func clip(text string) string {
	const most = 300
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return status.Plain(text)
}

// megabytes returns a number of bytes for people, or nothing if it is unknown.
func megabytes(bytes *int64) string {
	if bytes == nil {
		return ""
	}
	return fmt.Sprintf("%.0f MB", float64(*bytes)/1e6)
}

// cores returns CPU for people, or nothing if it is unknown.
func cores(n *float64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatFloat(*n, 'f', 2, 64)
}

// count groups digits by threes.
func count(n any) string {
	var v int64
	switch n := n.(type) {
	case int64:
		v = n
	case *int64:
		if n == nil {
			return ""
		}
		v = *n
	}
	text := strconv.FormatInt(v, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

// mood returns how a state is marked: ok, busy or bad.
func mood(state any) string {
	switch fmt.Sprint(state) {
	case string(status.StateRunning), "active":
		return "ok"
	case string(status.StateUnowned), "silent", string(status.Error):
		return "bad"
	case "gone", string(status.StateLockedOut), string(status.StateStopped), string(status.Note):
		return "idle"
	default:
		return "busy"
	}
}

// title is the text about a shard in the picture.
func title(s Shard) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s\n", s.Shard, s.Range)
	switch {
	case s.Holder == "":
		b.WriteString("nobody holds it")
	case s.Silent:
		fmt.Fprintf(&b, "held by %s, who is silent", clip(s.Holder))
	default:
		fmt.Fprintf(&b, "held by %s for %s, term %d", clip(s.Holder), age(s.HeldSeconds), s.Term)
	}
	fmt.Fprintf(&b, "\n%s", s.State)
	if s.Unprepared {
		b.WriteString(", unprepared")
	}
	if s.MovingTo != "" {
		fmt.Fprintf(&b, ", in handoff to %s", clip(s.MovingTo))
	}
	if s.Objects != nil {
		fmt.Fprintf(&b, "\n%s objects", count(s.Objects))
	}
	return b.String()
}
