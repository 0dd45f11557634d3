package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flotilla-kube/flotilla/internal/status"
)

// Exit statuses of 'flotilla status', besides 0, all is well, and 1, it failed.
const (
	StatusErrors   = 2
	StatusWarnings = 3
)

// statusAnnotation has the exit status of the process, on the root command.
const statusAnnotation = "flotilla.dev/exit-status"

// ExitStatus returns the exit status of a process whose command has succeeded: for 'flotilla
// status' it says how the fleet is, for 'flotilla audit' how it was.
func ExitStatus(root *cobra.Command) int {
	switch root.Annotations[statusAnnotation] {
	case string(status.Error):
		return StatusErrors
	case string(status.Warning):
		return StatusWarnings
	default:
		return 0
	}
}

func setExitStatus(command *cobra.Command, worst status.Severity) {
	root := command.Root()
	if root.Annotations == nil {
		root.Annotations = map[string]string{}
	}
	root.Annotations[statusAnnotation] = string(worst)
}

// lookInterval is how often to read the Leases again to find out whether something lasts.
const lookInterval = time.Second

func (c Config) statusCommand() *cobra.Command {
	var output form
	var all, once, watch bool
	command, target := c.newCommand("status", "Show the state of the fleet, and what is wrong",
		`Shows fleet, members and shards on one screen, and at the end what is wrong.

Much of what looks odd for a moment is part of a handoff, and no Lease says for how long it
has stood. Where there is such a thing, the Leases are read again for up to 10 seconds, to
tell whether it lasts; with --once they are not, and it is left out.

Of a fleet with more than 32 shards, only those are listed that do not simply run.

The status is 0 if all is well, 1 if the command failed, 2 if there are errors, and 3 if
there are warnings only. With --watch it is 0 once the command is interrupted.`,
		cobra.NoArgs, nil)
	command.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := output.validate(); err != nil {
			return err
		}
		if watch && once {
			return fmt.Errorf("--once: must not be given with --watch, which keeps reading")
		}
		if watch && output.value != formTable && output.value != formJSON && output.value != formYAML {
			return fmt.Errorf("--output %q: must be table, json or yaml with --watch", output.value)
		}
		conn, err := c.open(*target)
		if err != nil {
			return err
		}
		if watch {
			ctx, stop := c.Interrupt(cmd.Context())
			defer stop()
			return conn.watchStatus(ctx, cmd.OutOrStdout(), output.value, all)
		}
		return target.within(cmd.Context(), func(ctx context.Context) error {
			r, unsettled := conn.settled(ctx, !once)
			if r == nil {
				return unsettled
			}
			v := status.Of(r)
			setExitStatus(cmd, status.Worst(v.Findings))
			var err error
			switch output.value {
			case formName:
				err = printNames(cmd.OutOrStdout(), memberNames(v.Members))
			case formWide:
				err = print(cmd.OutOrStdout(), output.value, v, tableStatus(all, true))
			default:
				err = printOn(cmd.OutOrStdout(), output.value, v, tableStatus(all, false))
			}
			return errors.Join(err, unsettled)
		})
	}
	fs := command.Flags()
	fs.BoolVarP(&watch, "watch", "w", false, "Keep running, and show every change: on a terminal the whole screen, otherwise a line for each.")
	fs.BoolVar(&all, "all", false, "List every member, shard and finding, however many there are.")
	fs.BoolVar(&once, "once", false, "Read the Leases only once, and leave out what one reading cannot distinguish from a handoff.")
	output.addListFlag(command)
	return command
}

// memberNames returns the names of the members that are not gone.
func memberNames(members []status.MemberView) []string {
	var names []string
	for _, m := range members {
		if m.State != "gone" {
			names = append(names, m.Name)
		}
	}
	return names
}

// printOn is print for output that may go to a terminal.
func printOn[V any](w io.Writer, form string, view V, table func(io.Writer, V)) error {
	if form != formTable {
		return print(w, form, view, table)
	}
	var b bytes.Buffer
	table(&b, view)
	_, err := io.WriteString(w, screenOf(w).fit(b.String()))
	return err
}

// linked returns a function that writes a table in full, with links if a terminal shows them.
func linked[V any](table func(io.Writer, V)) func(io.Writer, V) {
	return func(w io.Writer, v V) {
		var b bytes.Buffer
		table(&b, v)
		_, _ = io.WriteString(w, screen{links: screenOf(w).links}.fit(b.String())) // the error is the writer's, as in rows
	}
}

// settled reads the Leases; if again says so, it keeps reading until everything that was suspicious
// at first has gone or has lasted. With the error it returns what it has read so far, nil if that
// is nothing.
func (c *connection) settled(ctx context.Context, again bool) (*status.Reading, error) {
	r, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	began := c.clock.Now()
	ticker := c.clock.NewTicker(lookInterval)
	defer ticker.Stop()
	for again && r.Suspicious() && c.clock.Since(began) < status.StandsAfter {
		var next *status.Reading
		select {
		case <-ticker.C():
			next, err = c.read(ctx)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return r, fmt.Errorf("what is wrong may be missing, because it is shown only once it has lasted for %v: %w", status.StandsAfter, err)
		}
		r = next.Following(r)
	}
	return r, nil
}

// watchStatus shows the status of the fleet until ctx ends.
func (c *connection) watchStatus(ctx context.Context, w io.Writer, form string, all bool) error {
	on := screenOf(w)
	switch {
	case form != formTable:
		return c.watch(ctx, (&statusStream{w: w, form: form}).next)
	case !on.isTerminal():
		return c.watch(ctx, (&statusLines{w: w}).next)
	}
	err := c.watch(ctx, func(r, _ *status.Reading, _ []status.Event) error {
		var b bytes.Buffer
		tableStatus(all, false)(&b, status.Of(r))
		return redraw(w, screenOf(w), b.String())
	})
	fmt.Fprintln(w)
	return err
}

// redraw replaces the text on the terminal.
func redraw(w io.Writer, on screen, text string) error {
	_, err := io.WriteString(w, "\x1b[H"+strings.Join(on.lines(text, on.height-1), "\x1b[K\r\n")+"\x1b[K\x1b[J")
	return err
}

// StatusLines returns what 'flotilla status' shows of a reading on w, in at most that many lines,
// which are at least 4. It is for a program that redraws them on a terminal below something else.
func StatusLines(w io.Writer, r *status.Reading, most int) []string {
	var b bytes.Buffer
	tableStatus(false, false)(&b, status.Of(r))
	return screenOf(w).lines(b.String(), max(most, fewestLines))
}

// statusStream writes a whole document whenever anything except ages has changed.
type statusStream struct {
	w    io.Writer
	form string
	last string
}

func (s *statusStream) next(r, _ *status.Reading, _ []status.Event) error {
	v := status.Of(r)
	key := v
	key.AsOf, key.Members, key.Findings, key.LeaderLocks = nil, nil, nil, nil
	for _, l := range v.LeaderLocks {
		l.Renewed = nil
		key.LeaderLocks = append(key.LeaderLocks, l)
	}
	for _, m := range v.Members {
		m.Heartbeat = nil
		key.Members = append(key.Members, m)
	}
	for _, f := range v.Findings {
		f.Message = "" // says for how long
		key.Findings = append(key.Findings, f)
	}
	text, err := json.Marshal(key)
	if err != nil || string(text) == s.last {
		return err
	}
	if s.last != "" && s.form == formYAML {
		fmt.Fprintln(s.w, "---")
	}
	s.last = string(text)
	if s.form == formJSON {
		return json.NewEncoder(s.w).Encode(v) // a line each
	}
	return print(s.w, s.form, v, tableStatus(false, false))
}

// statusLines writes a line for each change: what happens to Leases, and which findings come and
// go.
type statusLines struct {
	w     io.Writer
	known map[findingKey]status.Severity
}

type findingKey struct {
	kind   status.Kind
	object string
}

func (s *statusLines) next(r, before *status.Reading, happened []status.Event) error {
	findings := status.Findings(r)
	if before == nil {
		fmt.Fprintf(s.w, "%s fleet %s, plan generation %d: %s, %s live, %s\n", stamp(r.Now), r.Fleet, r.Plan.Generation,
			status.Plural(len(r.Plan.Shards()), "shard"), status.Plural(len(r.Roster.Members()), "member"), status.Plural(len(findings), "finding"))
	}
	for _, e := range happened {
		fmt.Fprintln(s.w, eventLine(e))
	}
	now := map[findingKey]status.Severity{}
	for _, f := range findings {
		key := findingKey{f.Kind, f.Object}
		if _, said := now[key]; said {
			continue // the worst comes first
		}
		if now[key] = f.Severity; s.known[key] != f.Severity {
			fmt.Fprintf(s.w, "%s %s: %s: %s\n", stamp(r.Now), severity(f), f.Kind, status.Plain(f.Message))
		}
	}
	for key := range s.known {
		if _, still := now[key]; !still {
			if _, err := fmt.Fprintf(s.w, "%s over: %s: %s\n", stamp(r.Now), key.kind, key.object); err != nil {
				return err
			}
		}
	}
	s.known = now
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func eventLine(e status.Event) string {
	text := fmt.Sprintf("%s %s: %s %s: %s", stamp(e.Time), e.Kind, e.About, status.Plain(e.Object), status.Plain(e.Message))
	if e.Severity == status.Warning {
		text += " (warning)"
	}
	return text
}
