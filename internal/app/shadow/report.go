package shadow

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/flotilla-kube/flotilla/internal/status"
)

// Member is what the process knows about itself.
type Member struct {
	Version string `json:"version"`
	Fleet   string `json:"fleet"`
	// Shadow says which member of how many it stands for.
	Shadow string `json:"shadow"`
	// Plan says where the plan comes from.
	Plan string `json:"plan"`
	// Shards are those that it would own.
	Shards []string `json:"shards"`
	// Ready is set once all shards run with full caches; NotReady says why they do not.
	Ready    bool   `json:"ready"`
	NotReady string `json:"notReady,omitempty"`
	// NotRun are controllers that fill caches and do not run, and Ignored are flags without a
	// meaning here.
	NotRun  []string `json:"notRun,omitempty"`
	Ignored []string `json:"ignored,omitempty"`
	Memory  Memory   `json:"memory"`
	// Leaked are writes that the fence had to refuse; anything but 0 is a bug in this package.
	Leaked int64 `json:"leaked"`
}

// Memory is the memory of the process, in bytes; 0 if unknown.
type Memory struct {
	Live         int64 `json:"live"`
	Resident     int64 `json:"resident"`
	ResidentPeak int64 `json:"residentPeak"`
	// Objects counts the cached objects, each once for each shard.
	Objects int64 `json:"objects"`
}

// Steady is what has come since the caches were full, per second.
type Steady struct {
	// Since is how long ago that was, in seconds; 0 if they are not.
	Since  float64 `json:"since"`
	Events float64 `json:"events"`
	Bytes  float64 `json:"bytes"`
}

// Report is a shadow's report.
type Report struct {
	Member
	// Seconds is how long the shadow has run, ToReady how long it took to fill its caches.
	Seconds float64 `json:"seconds"`
	ToReady float64 `json:"toReady,omitempty"`
	// Reads is the sum of all reads, and Steady its rate.
	Reads  Read   `json:"reads"`
	Steady Steady `json:"steady"`
	Rights Rights `json:"rights"`
	// Lasting and Objects are the sums over all writes.
	Lasting int     `json:"lasting"`
	Objects int     `json:"objects"`
	Writes  []Write `json:"writes"`
	// Events about objects were refused too; Uncounted are attempts on objects or of kinds beyond
	// the bounds.
	Events    int64  `json:"events"`
	Uncounted int64  `json:"uncounted,omitempty"`
	ByRead    []Read `json:"byRead"`
}

// Reporter makes reports. Its methods are safe for concurrent use.
type Reporter struct {
	shadow *Shadow
	member func() Member
	began  time.Time
	ready  ready
}

// NewReporter starts measuring the time. It calls member for each report.
func NewReporter(s *Shadow, member func() Member) *Reporter {
	return &Reporter{shadow: s, member: member, began: s.now()}
}

// Report returns the current report.
func (r *Reporter) Report() Report {
	report := Report{Member: r.member(), ByRead: r.shadow.load.list(), Rights: r.shadow.rights.list()}
	report.Reads = total(report.ByRead)
	now := r.shadow.now()
	report.Seconds = now.Sub(r.began).Seconds()
	if at, then := r.ready.at(report.Ready, now, report.Reads); !at.IsZero() {
		report.ToReady = at.Sub(r.began).Seconds()
		if since := now.Sub(at).Seconds(); since > 0 {
			report.Steady = Steady{since, float64(report.Reads.Events-then.Events) / since, float64(report.Reads.Bytes-then.Bytes) / since}
		}
	}
	report.Writes, report.Events, report.Uncounted = r.shadow.writes.list()
	for _, w := range report.Writes {
		report.Lasting += w.Lasting
		report.Objects += w.Objects
	}
	return report
}

// ServeHTTP implements http.Handler: the report as text, or with ?output=json as JSON.
func (r *Reporter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		http.Error(w, "the report can only be read", http.StatusMethodNotAllowed)
		return
	}
	switch output := req.URL.Query().Get("output"); output {
	case "":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_ = r.Report().Text(w)
	case "json":
		w.Header().Set("Content-Type", "application/json")
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		_ = encoder.Encode(r.Report())
	default:
		http.Error(w, fmt.Sprintf("output %q: must be json, or left out for text", output), http.StatusBadRequest)
	}
}

// Maximum lines of each table; JSON has all.
const (
	mostWrites = 40
	mostRights = 40
	mostReads  = 10
)

// Text writes the report for people.
func (r Report) Text(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "SHADOW of member %s of fleet %s, %s, for %s\n", r.Shadow, r.Fleet, r.Version, seconds(r.Seconds))
	fmt.Fprintf(&b, "Plan:        %s\n", r.Plan)
	fmt.Fprintf(&b, "Shards:      %d: %s\n", len(r.Shards), strings.Join(r.Shards, " "))
	if r.Ready {
		fmt.Fprintf(&b, "Caches:      full after %s, %s\n", seconds(r.ToReady), status.Plural(int(r.Memory.Objects), "object"))
	} else {
		fmt.Fprintf(&b, "Caches:      NOT FULL: %s\n", r.NotReady)
	}
	fmt.Fprintf(&b, "Memory:      %s live heap, %s resident, %s at the most\n", megabytes(r.Memory.Live), megabytes(r.Memory.Resident), megabytes(r.Memory.ResidentPeak))
	fmt.Fprintf(&b, "Watches:     %d open; %s and %d events received so far", r.Reads.Open, megabytes(r.Reads.Bytes), r.Reads.Events)
	if r.Steady.Since > 0 {
		fmt.Fprintf(&b, "; with full caches %.1f events/s, %.1f kB/s", r.Steady.Events, r.Steady.Bytes/1000)
	}
	fmt.Fprintf(&b, "\nRights:      %d missing, %d granted, %d not known", len(r.Rights.Missing), r.Rights.Allowed, r.Rights.Unanswered)
	if r.Rights.Failure != "" {
		fmt.Fprintf(&b, " (%s)", r.Rights.Failure)
	}
	fmt.Fprintf(&b, "\nWrites:      %s, %d lasting; none was sent. Events: %d\n", status.Plural(r.Objects, "object"), r.Lasting, r.Events)
	if r.Uncounted > 0 {
		fmt.Fprintf(&b, "Uncounted:   %s on objects that there was no room to follow\n", status.Plural(int(r.Uncounted), "attempt"))
	}
	if len(r.NotRun) > 0 {
		fmt.Fprintf(&b, "Not run:     %s\n", strings.Join(r.NotRun, ", "))
	}
	if len(r.Ignored) > 0 {
		fmt.Fprintf(&b, "Ignored:     %s\n", strings.Join(r.Ignored, ", "))
	}
	if r.Leaked > 0 {
		fmt.Fprintf(&b, "BUG:         %d writes came as far as the fence, which refused them. Please report this.\n", r.Leaked)
	}
	r.tables(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

func (r Report) tables(b *strings.Builder) {
	writeTable(b, "WOULD WRITE\tAS\tOBJECTS\tLASTING\tATTEMPTS\tFOR EXAMPLE", mostWrites, r.Writes, func(w Write) string {
		return fmt.Sprintf("%s %s\t%s\t%d\t%d\t%d\t%s", w.Verb, w.Name(), w.Client, w.Objects, w.Lasting, w.Attempts, strings.Join(w.Examples, " "))
	})
	writeTable(b, "MISSING RIGHT\tOF\tFOR\tIN", mostRights, r.Rights.Missing, func(m Right) string {
		user, in := m.User, m.Namespace
		if user == "" {
			user = "this identity"
		}
		if in == "" {
			in = "the cluster"
		}
		return fmt.Sprintf("%s %s\t%s\t%s\t%s", m.Verb, m.Name(), user, m.Client, in)
	})
	var refused []Read
	for _, read := range r.ByRead {
		if read.Refused > 0 {
			refused = append(refused, read)
		}
	}
	writeTable(b, "REFUSED TO THE SHADOW ITSELF\tTIMES", mostReads, refused, func(read Read) string {
		return fmt.Sprintf("%s %s\t%d", read.Verb, read.Resource, read.Refused)
	})
	writeTable(b, "READ\tREQUESTS\tOPEN\tRECEIVED\tEVENTS", mostReads, r.ByRead, func(read Read) string {
		return fmt.Sprintf("%s %s\t%d\t%d\t%s\t%d", read.Verb, read.Resource, read.Requests, read.Open, megabytes(read.Bytes), read.Events)
	})
}

func writeTable[T any](b *strings.Builder, head string, most int, all []T, line func(T) string) {
	if len(all) == 0 {
		return
	}
	b.WriteByte('\n')
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, head)
	for _, one := range all[:min(most, len(all))] {
		fmt.Fprintln(w, line(one))
	}
	_ = w.Flush() // to memory
	if more := len(all) - most; more > 0 {
		fmt.Fprintf(b, "... and %d more; /shadow?output=json has all\n", more)
	}
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}
