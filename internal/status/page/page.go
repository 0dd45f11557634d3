package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/internal/status"
)

const (
	// follows is the maximum time between two documents for the second one to know how long
	// something has lasted: within a longer time it could have changed and come back.
	follows = 30 * time.Second
	// maxRefresh is the longest refresh interval that may be asked for, in seconds.
	maxRefresh = 3600
)

// Config says whose page it is. All fields are required, except Member.
type Config struct {
	// Fleet is the fleet's name. Member is this member's; empty for a page made outside of any
	// member, from the Leases.
	Fleet, Member string
	// Version is the version of the program that makes the page.
	Version string
}

// Page serves a member's status. Its methods are safe for concurrent use.
type Page struct {
	config Config

	mu          sync.Mutex
	note        string
	source      Source
	leaderLocks []string
	// last is the last reading, and read when it was made.
	last *status.Reading
	read time.Time
}

// New returns a page that says that the process has not joined its fleet yet.
func New(c Config) *Page {
	return &Page{config: c, note: "This process has only just started and has not joined the fleet yet."}
}

// Say makes the page say why there is no fleet to show.
func (p *Page) Say(note string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note = note
}

// Show makes the page show a member, from now on. leaderLocks are the foreign Leases that it holds
// with the others.
func (p *Page) Show(source Source, leaderLocks []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.source, p.leaderLocks, p.note = source, leaderLocks, ""
}

// Document returns the current document.
func (p *Page) Document() Document {
	wall := time.Now()
	p.mu.Lock()
	source, leaderLocks, note, before := p.source, p.leaderLocks, p.note, p.last
	if wall.Sub(p.read) > follows {
		before = nil
	}
	p.mu.Unlock()
	if source == nil {
		d := empty(p.config.Fleet, Self{Member: p.config.Member, Version: p.config.Version}, wall)
		d.Note = note
		return d
	}
	d, reading := newDocument(p.config, leaderLocks, source, before, wall)
	p.mu.Lock()
	p.last, p.read = reading, wall
	p.mu.Unlock()
	return d
}

// ServeHTTP answers GET and HEAD: with JSON for ?format=json or if Accept names application/json
// before text/html, else with HTML, which reloads itself at intervals with ?refresh=SECONDS.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Vary", "Accept")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "method "+strconv.Quote(r.Method)+": must be GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	asJSON, refresh, err := parse(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var body bytes.Buffer
	if asJSON {
		h.Set("Content-Type", "application/json")
		encoder := json.NewEncoder(&body)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(p.Document())
	} else {
		h.Set("Content-Type", "text/html; charset=utf-8")
		err = render(&body, p.Document(), refresh)
	}
	if err != nil {
		http.Error(w, "making the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body.Bytes())
	}
}

// parse returns what is asked for. The error names the parameter, its value and what is allowed.
func parse(r *http.Request) (asJSON bool, refresh int, err error) {
	query := r.URL.Query()
	switch format := query.Get("format"); format {
	case "":
		asJSON = prefersJSON(r.Header.Values("Accept"))
	case "json":
		asJSON = true
	case "html":
	default:
		return false, 0, fmt.Errorf("format=%q: must be html or json", format)
	}
	if text := query.Get("refresh"); text != "" {
		if refresh, err = strconv.Atoi(text); err != nil || refresh < 1 || refresh > maxRefresh {
			return false, 0, fmt.Errorf("refresh=%q: must be a number of seconds from 1 to %d", text, maxRefresh)
		}
	}
	return asJSON, refresh, nil
}

// prefersJSON reports whether JSON is named, and HTML is not named before it. It ignores quality
// values except 0.
func prefersJSON(accept []string) bool {
	for _, item := range strings.Split(strings.Join(accept, ","), ",") {
		name, params, err := mime.ParseMediaType(item)
		if quality, err := strconv.ParseFloat(params["q"], 64); err == nil && quality == 0 {
			continue
		}
		switch {
		case err != nil:
		case name == "application/json":
			return true
		case name == "text/html", name == "application/xhtml+xml":
			return false
		}
	}
	return false
}
