package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/fleet/history"
)

const (
	defaultSince = time.Hour
	maxSince     = 30 * 24 * time.Hour
	// eventPage is how many Kubernetes events are asked for at a time.
	eventPage = 500
	// sameWithin is how far two accounts of one thing may lie apart: Kubernetes events have whole
	// seconds, and are written later.
	sameWithin = 3 * time.Second
)

// EventsView is what 'flotilla events' prints.
type EventsView struct {
	Fleet string    `json:"fleet"`
	Since time.Time `json:"since"`
	// Events are sorted by time.
	Events []status.Event `json:"events"`
	// Missing says why there are no Kubernetes events among them, if so.
	Missing string `json:"missing,omitempty"`

	now time.Time
}

func (c Config) eventsCommand() *cobra.Command {
	var output form
	var watch bool
	var since time.Duration
	command, target := c.newCommand("events", "Show what has happened in the fleet recently",
		`Shows what the fleet's Leases tell of the past: the last transition of each. Where the user
may list the Kubernetes events of the Leases' namespace, what these say of the fleet's
Leases is shown too, sorted in by time; the same thing is shown once.

With --watch, what happens from now on is shown as the Leases change, which needs nothing
but them.`,
		cobra.NoArgs, nil)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := output.validate(); err != nil {
			return err
		}
		if since <= 0 || since > maxSince {
			return fmt.Errorf("--since=%v: must be over 0s, up to %v", since, maxSince)
		}
		conn, err := c.open(*target)
		if err != nil {
			return err
		}
		if watch {
			ctx, stop := c.Interrupt(cmd.Context())
			defer stop()
			stream := &eventStream{w: cmd.OutOrStdout(), form: output.value, since: since, past: cmd.Flags().Changed("since")}
			return conn.watch(ctx, stream.next)
		}
		return target.within(cmd.Context(), func(ctx context.Context) error {
			v, err := conn.events(ctx, since)
			if err != nil {
				return err
			}
			return printOn(cmd.OutOrStdout(), output.value, v, tableEvents)
		})
	}
	fs := command.Flags()
	fs.BoolVarP(&watch, "watch", "w", false, "Keep running, and show what happens; earlier events only if --since is given.")
	fs.DurationVar(&since, "since", defaultSince, "How far to look back.")
	output.addFlag(command)
	return command
}

func (c *connection) events(ctx context.Context, since time.Duration) (EventsView, error) {
	r, err := c.read(ctx)
	if err != nil {
		return EventsView{}, err
	}
	v := EventsView{Fleet: r.Fleet, Since: r.Now.Add(-since).UTC().Truncate(time.Second), now: r.Now}
	recorded, err := c.recorded(ctx, r)
	switch {
	case apierrors.IsForbidden(err):
		v.Missing = fmt.Sprintf("Kubernetes events are left out: this user may not list them in namespace %s", c.target.Namespace)
	case err != nil:
		v.Missing = fmt.Sprintf("Kubernetes events are left out: %v", err)
	}
	v.Events = mergeEvents(status.Past(r), recorded)
	v.Events = slices.DeleteFunc(v.Events, func(e status.Event) bool { return e.Time.Before(v.Since) })
	if v.Events == nil {
		v.Events = []status.Event{}
	}
	return v, nil
}

// recorded returns the Kubernetes events about the fleet's Leases.
func (c *connection) recorded(ctx context.Context, r *status.Reading) ([]status.Event, error) {
	var found []status.Event
	ours := map[string]bool{}
	for _, l := range r.LeaderLocks() {
		ours[l.Lease] = true
	}
	options := metav1.ListOptions{FieldSelector: "involvedObject.kind=Lease", Limit: eventPage}
	for {
		list, err := c.client.CoreV1().Events(c.target.Namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.InvolvedObject.Kind == "Lease" && (ours[e.InvolvedObject.Name] || r.Names(e.InvolvedObject.Name)) {
				found = append(found, recordedEvent(r, e))
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return found, nil
		}
	}
}

// recordedEvent is a Kubernetes event as one of ours.
func recordedEvent(r *status.Reading, e *corev1.Event) status.Event {
	at := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.FirstTimestamp.Time, e.EventTime.Time, e.LastTimestamp.Time} {
		if !t.IsZero() {
			at = t
		}
	}
	count := int(e.Count)
	if e.Series != nil {
		count, at = int(e.Series.Count), e.Series.LastObservedTime.Time
	}
	out := status.Event{
		Time: at.UTC(), Severity: status.Note, Kind: history.Kind(status.Plain(e.Reason)), Lease: e.InvolvedObject.Name,
		Message: status.Plain(strings.TrimSpace(e.Message)), Source: status.FromEvent,
	}
	if e.Type == corev1.EventTypeWarning {
		out.Severity = status.Warning
	}
	if count > 1 {
		out.Count = count
	}
	out.About, out.Object = r.Object(e.InvolvedObject.Name)
	return out
}

// mergeEvents returns all of them sorted, without what is there twice: a Kubernetes event about the
// Lease and the term that the Lease itself tells of, at about the same time; and Kubernetes events
// that say the same at the same time.
func mergeEvents(told, recorded []status.Event) []status.Event {
	all := slices.Clone(told)
	type same struct {
		lease, message string
		kind           history.Kind
		at             time.Time
	}
	seen := map[same]bool{}
	for _, e := range recorded {
		key := same{e.Lease, e.Message, e.Kind, e.Time}
		known := slices.ContainsFunc(told, func(o status.Event) bool {
			return o.Lease == e.Lease && o.Term > 0 && o.Time.Sub(e.Time).Abs() <= sameWithin && e.Severity == status.Note && names(e.Message, o.Term)
		})
		if !known && !seen[key] {
			all = append(all, e)
		}
		seen[key] = true
	}
	status.SortEvents(all)
	return all
}

var numbers = regexp.MustCompile(`\d+`)

// names reports whether a text has the number of a term in it, whatever else it says.
func names(text string, term int32) bool {
	return slices.Contains(numbers.FindAllString(text, -1), strconv.Itoa(int(term)))
}

func tableEvents(w io.Writer, v EventsView) {
	if len(v.Events) == 0 {
		fmt.Fprintf(w, "Nothing has happened in fleet %s since %s\n", v.Fleet, v.Since.Format(time.RFC3339))
	} else {
		var lines [][]string
		for _, e := range v.Events {
			kind := string(e.Kind)
			if e.Count > 1 {
				kind += fmt.Sprintf(" (x%d)", e.Count)
			}
			severity := corev1.EventTypeNormal
			if e.Severity == status.Warning {
				severity = corev1.EventTypeWarning
			}
			lines = append(lines, []string{e.Time.Format("15:04:05.000"), status.Short(v.now.Sub(e.Time)) + " ago", severity, kind, e.About + " " + e.Object, e.Message})
		}
		widest := maxCell * 2
		rowsOf(w, widest, []string{"TIME", "AGE", "TYPE", "KIND", "OBJECT", "MESSAGE"}, lines)
	}
	if v.Missing != "" {
		fmt.Fprintf(w, "\n%s\n", status.Plain(v.Missing))
	}
}

// eventStream writes what happens as it does.
type eventStream struct {
	w     io.Writer
	form  string
	since time.Duration
	past  bool
	begun bool
}

func (s *eventStream) next(r, before *status.Reading, happened []status.Event) error {
	if before == nil && s.past {
		for _, e := range status.Past(r) {
			if r.Now.Sub(e.Time) <= s.since {
				happened = append(happened, e)
			}
		}
	}
	for _, e := range happened {
		if err := s.write(e); err != nil {
			return err
		}
	}
	return nil
}

func (s *eventStream) write(e status.Event) error {
	switch s.form {
	case formJSON:
		return json.NewEncoder(s.w).Encode(e)
	case formYAML:
		if s.begun {
			fmt.Fprintln(s.w, "---")
		}
		s.begun = true
		return print(s.w, formYAML, e, nil)
	default:
		_, err := fmt.Fprintln(s.w, screenOf(s.w).fit(eventLine(e)))
		return err
	}
}
