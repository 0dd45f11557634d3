package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

func (c Config) canaryCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "canary",
		Short: "Try a version on some namespaces before the others",
		Long: `Tries a version on some namespaces: while the canary runs, members of that version get the
shards of these namespaces and nothing else, and members of other versions all the rest, the
groups included. Where no member of one kind is live, those of the other have everything.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.AddCommand(c.canaryStartCommand(), c.canaryPromoteCommand(), c.canaryAbortCommand(), c.canaryForgetCommand(), c.canaryStatusCommand())
	return command
}

// canaryRequest is what 'flotilla canary start' asks for.
type canaryRequest struct {
	namespaces []string
	weight     string
	version    string
	by         string
}

func (c Config) canaryStartCommand() *cobra.Command {
	var q canaryRequest
	var dryRun bool
	var wait time.Duration
	command, target := c.newCommand("start --namespaces NAME,... | --weight PERCENT", "Begin to try a version on some namespaces",
		`Begins a canary: gives each of the namespaces a shard of its own, and keeps members of the
version to these. With --weight it picks a part of the keyspace instead that has about that
share of the objects, without kube-system.

Begin it before the first member of the version starts, and name the version: else that
member takes its share of everything for as long as the canary has not begun.`,
		cobra.NoArgs, func(ctx context.Context, cmd *cobra.Command, conn *connection, _ []string) error {
			if err := checkWait(cmd, wait, dryRun); err != nil {
				return err
			}
			share, err := q.check()
			if err != nil {
				return err
			}
			q.by = cmp.Or(q.by, whoami())
			since := c.Clock.Now().UTC().Format(time.RFC3339)
			return conn.canary(ctx, cmd, c.Check, dryRun, wait, func(r *status.Reading) (Edit, error) {
				e, err := startCanary(r, q, share, since)
				e.Warnings = append(e.Warnings, conn.unknownNamespaces(ctx, q.namespaces)...)
				return e, err
			})
		})
	fs := command.Flags()
	fs.StringSliceVar(&q.namespaces, "namespaces", nil, fmt.Sprintf("The namespaces, comma separated, at most %d. They need not exist.", shard.MaxCanaryNamespaces))
	fs.StringVar(&q.weight, "weight", "", "Instead of --namespaces: about this share of all objects, such as 10%.")
	fs.StringVar(&q.version, "version", "", "The version, such as v1.38.0. Default: the newest of the live members, if they have several.")
	fs.StringVar(&q.by, "by", "", "Who begins it, for those who find it. Default: the name of the user here, and of this machine.")
	_ = command.RegisterFlagCompletionFunc("version", c.completeFlag(target, liveVersions))
	addWrite(command, &dryRun, &wait)
	return command
}

func (c Config) canaryPromoteCommand() *cobra.Command {
	return c.canaryEndCommand("promote", "Let the version that is tried have its share of everything",
		`Ends the canary in favour of its version: its members get their share of everything, and keep
what they were tried on. Then replace the other members.`, func(r *status.Reading, _ canaryEnd) (Edit, error) { return promoteCanary(r) })
}

func (c Config) canaryAbortCommand() *cobra.Command {
	return c.canaryEndCommand("abort", "Take everything from the version that is tried",
		`Ends the canary against its version: other members take its namespaces at once, and members
of that version get nothing while others are there, also when they are started anew. Then
replace them, and have the canary forgotten.`, abortCanary)
}

func (c Config) canaryForgetCommand() *cobra.Command {
	return c.canaryEndCommand("forget", "Let members of an aborted version have their share again",
		`Removes a canary that has been aborted from the plan: members of its version get their share
of everything again. While there are any, beside others, that takes --force.`, forgetCanary)
}

// canaryEnd is what the commands are given that end a canary.
type canaryEnd struct {
	since, by string
	force     bool
}

func (c Config) canaryEndCommand(use, short, long string, end func(*status.Reading, canaryEnd) (Edit, error)) *cobra.Command {
	var dryRun, force bool
	var wait time.Duration
	var by string
	command, _ := c.newCommand(use, short, long, cobra.NoArgs, func(ctx context.Context, cmd *cobra.Command, conn *connection, _ []string) error {
		if err := checkWait(cmd, wait, dryRun); err != nil {
			return err
		}
		since := c.Clock.Now().UTC().Format(time.RFC3339)
		return conn.canary(ctx, cmd, c.Check, dryRun, wait, func(r *status.Reading) (Edit, error) {
			return end(r, canaryEnd{since, cmp.Or(by, whoami()), force})
		})
	})
	switch use {
	case "abort":
		command.Flags().StringVar(&by, "by", "", "Who aborts it, for those who find it. Default: the name of the user here, and of this machine.")
	case "forget":
		command.Flags().BoolVar(&force, "force", false, "Forget it although members of its version are live: they get their share of everything.")
	}
	addWrite(command, &dryRun, &wait)
	return command
}

// check returns the share that --weight asks for, 0 if it is not given.
func (q canaryRequest) check() (share float64, err error) {
	switch {
	case q.weight == "" && len(q.namespaces) == 0:
		return 0, errors.New("--namespaces: must name at least one namespace, or --weight be given")
	case q.weight != "" && len(q.namespaces) > 0:
		return 0, errors.New("--weight: must not be given with --namespaces, which say what it is tried on")
	case len(q.namespaces) > shard.MaxCanaryNamespaces:
		return 0, fmt.Errorf("--namespaces: %d are named: must be at most %d", len(q.namespaces), shard.MaxCanaryNamespaces)
	}
	for _, name := range q.namespaces {
		if !isLabel(name) {
			return 0, fmt.Errorf("--namespaces %q: must be the name of a namespace, %s", name, aLabel)
		}
	}
	if q.version != "" && !skew.Newer(q.version, "") || strings.ContainsAny(q.version, " \n") || q.version != "" && !strings.HasPrefix(q.version, "v") {
		return 0, fmt.Errorf("--version %q: must be a version as 'flotilla status' shows it, such as v1.38.0", q.version)
	}
	if q.weight == "" {
		return 0, nil
	}
	text, hasUnit := strings.CutSuffix(q.weight, "%")
	percent, err := strconv.ParseFloat(text, 64)
	if !hasUnit || err != nil || !(percent > 0 && percent <= 50) {
		return 0, fmt.Errorf("--weight %q: must be more than 0%% and at most 50%%, such as 10%%", q.weight)
	}
	return percent / 100, nil
}

// canary writes what compute makes of the plan, retrying if others write meanwhile, and prints the
// result.
func (c *connection) canary(
	ctx context.Context, cmd *cobra.Command, check func(shard.Plan) error, dryRun bool, wait time.Duration, compute func(*status.Reading) (Edit, error),
) error {
	var e Edit
	err := c.writeIf(ctx, func(r *status.Reading) (shard.Plan, bool, error) {
		if r.Fault != nil {
			return shard.Plan{}, false, r.Problem()
		}
		var err error
		if e, err = compute(r); err != nil {
			return shard.Plan{}, false, err
		}
		more := e.Warnings
		if e, err = e.checked(r, check); err != nil {
			return shard.Plan{}, false, err
		}
		e.Warnings = append(e.Warnings, more...)
		return e.Next, !dryRun && !e.Same(), nil
	})
	if err != nil {
		return err
	}
	tableEdit(cmd.OutOrStdout(), viewEdit(e))
	return finish(cmd, c, e, dryRun, wait)
}

// startCanary returns the plan in which a version is tried, before it is checked.
func startCanary(r *status.Reading, q canaryRequest, share float64, since string) (Edit, error) {
	if v := r.Canary(); v != nil && !v.Aborted {
		return Edit{}, fmt.Errorf("a canary of %s runs already%s: promote or abort it first", v, sinceBy(v))
	}
	version, warning, err := versionToTry(r, q.version)
	if err != nil {
		return Edit{}, err
	}
	if v := r.Canary(); v != nil && v.Version != version && slices.ContainsFunc(r.Roster.Members(), r.IsTried) {
		return Edit{}, fmt.Errorf("members of %s, which was aborted, are live and would get their share of everything: replace them first, or let them have it with 'flotilla canary forget --force'", status.Plain(v.Version))
	}
	e := Edit{From: r.Plan}
	if warning != "" {
		e.Warnings = append(e.Warnings, warning)
	}
	names := slices.Compact(slices.Sorted(slices.Values(q.namespaces)))
	canary := &shard.Canary{Version: version, Namespaces: names, Since: since, By: q.by}
	if share > 0 {
		part, got, err := partOfShare(r, share)
		if err != nil {
			return Edit{}, err
		}
		canary.Ranges = []shard.Range{part}
		e.Warnings = append(e.Warnings, fmt.Sprintf("the canary is for %.1f %% of the objects, where %.1f %% was asked for", 100*got, 100*share))
	}
	edited := r.Plan
	edited.Canary = canary
	holders := r.Holders()
	for _, ring := range r.Plan.Rings {
		if ring.Scope != shard.ScopeNamespaced {
			continue
		}
		// If shards are cut, the parts stay with the holder, and so do the others.
		edited = e.homesKept(r, edited, ring.Name, holders)
	}
	return e.become(r, edited)
}

// versionToTry returns the version for a canary, and a warning if there is one.
func versionToTry(r *status.Reading, asked string) (version, warning string, err error) {
	var versions []string
	for _, m := range r.Roster.Members() {
		if m.Annotations[leaseapi.FormatAnnotation] == "" {
			return "", "", fmt.Errorf("member %s has a build that does not know canaries, and would refuse the plan: replace it first", status.Plain(m.Name))
		}
		if v := leaseapi.VersionOf(m); !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	newest := ""
	for _, v := range versions {
		if newest == "" || skew.Newer(v, newest) {
			newest = v
		}
	}
	all := status.Plain(strings.Join(versions, ", "))
	switch {
	case asked == "" && len(versions) == 0:
		return "", "", errors.New("--version: must be given, because no member is live")
	case asked == "" && len(versions) == 1:
		return "", "", fmt.Errorf("--version: must be given, because all live members have %s", all)
	case asked == "":
		return newest, "", nil
	case len(versions) == 1 && versions[0] == asked:
		return "", "", fmt.Errorf("--version %s: all live members have it: must be another one", asked)
	case len(versions) > 1 && !slices.Contains(versions, asked):
		return "", "", fmt.Errorf("--version %s: no live member has it: must be one of %s", asked, all)
	case !slices.Contains(versions, asked):
		warning = fmt.Sprintf("no live member has %s yet: until one does, members of %s keep the canary's namespaces", asked, all)
	}
	return asked, warning, nil
}

// partOfShare returns a part of the keyspace that has about that share of the objects.
func partOfShare(r *status.Reading, share float64) (shard.Range, float64, error) {
	for _, ring := range r.Plan.Rings {
		if ring.Scope != shard.ScopeNamespaced {
			continue
		}
		weights, missing := r.Weights(ring)
		if len(missing) > 0 {
			return shard.Range{}, 0, fmt.Errorf("--weight: %w (missing from %s)", errNotCounted, some(idTexts(missing)))
		}
		part, got, found := ring.PartOfShare(weights.Census, share, shard.Hash(metav1.NamespaceSystem))
		if !found {
			return shard.Range{}, 0, fmt.Errorf("--weight %.3g%%: no part of the keyspace is near that: name namespaces instead", 100*share)
		}
		return part, got, nil
	}
	return shard.Range{}, 0, errors.New("--weight: must not be given, because the plan has no ring of namespaces")
}

// unknownNamespaces returns warnings for namespaces that do not exist: they may be created later,
// or be a typing error.
func (c *connection) unknownNamespaces(ctx context.Context, names []string) []string {
	var unknown []string
	for _, name := range names {
		if _, err := c.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			unknown = append(unknown, fmt.Sprintf("namespace %s does not exist (yet)", name))
		}
	}
	return unknown
}

// runningCanary returns the canary, or an error if there is none to end.
func runningCanary(r *status.Reading) (*status.CanaryView, error) {
	v := r.Canary()
	switch {
	case v == nil:
		return nil, errors.New("no canary runs: see 'flotilla canary start'")
	case v.Aborted:
		return nil, fmt.Errorf("the canary of %s has been aborted%s: start it again, or run 'flotilla canary forget'", v, sinceBy(v))
	}
	return v, nil
}

func promoteCanary(r *status.Reading) (Edit, error) {
	v, err := runningCanary(r)
	if err != nil {
		return Edit{}, err
	}
	e := Edit{From: r.Plan}
	if err := v.Unfinished(); err != nil {
		e.Warnings = append(e.Warnings, err.Error())
	}
	if len(v.Members) == 0 {
		e.Warnings = append(e.Warnings, fmt.Sprintf("no live member has %s: nothing has been tried", status.Plain(v.Version)))
	}
	holders := r.Holders()
	return e.become(r, r.Plan.Promoted(func(id shard.ID) string {
		if slices.Contains(v.Members, holders[id]) {
			return holders[id]
		}
		return ""
	}))
}

func abortCanary(r *status.Reading, end canaryEnd) (Edit, error) {
	if _, err := runningCanary(r); err != nil {
		return Edit{}, err
	}
	edited, aborted := r.Plan, *r.Plan.Canary
	aborted.Aborted, aborted.Since, aborted.By = true, end.since, end.by
	edited.Canary = &aborted
	e := Edit{From: r.Plan}
	if v := r.Canary(); len(v.Others) == 0 && len(v.Members) > 0 {
		e.Warnings = append(e.Warnings, fmt.Sprintf("no live member that is not drained has another version than %s: its members keep all shards until one has", status.Plain(v.Version)))
	}
	return e.become(r, edited)
}

func forgetCanary(r *status.Reading, end canaryEnd) (Edit, error) {
	v := r.Canary()
	switch {
	case v == nil:
		return Edit{}, errors.New("there is no canary")
	case !v.Aborted:
		return Edit{}, fmt.Errorf("the canary of %s runs%s: promote or abort it", v, sinceBy(v))
	case !end.force && len(v.Members) > 0 && len(v.Others) > 0:
		return Edit{}, fmt.Errorf("members of %s, which was aborted, are live (%s) and would get their share of everything: replace them first, or let them have it with --force",
			status.Plain(v.Version), status.Plain(some(v.Members)))
	}
	edited := r.Plan
	edited.Canary = nil
	return Edit{From: r.Plan}.become(r, edited)
}

func sinceBy(v *status.CanaryView) string {
	stop := leaseapi.Stop{By: status.Plain(v.By)}
	if v.Since != nil {
		stop.Since = *v.Since
	}
	return stop.String()
}

// CanaryStatus is what 'flotilla canary status' prints.
type CanaryStatus struct {
	Fleet string `json:"fleet"`
	// Fault says why the plan on the Lease cannot be read; whether there is a canary is then
	// unknown.
	Fault    string               `json:"fault,omitempty"`
	Canary   *status.CanaryView   `json:"canary,omitempty"`
	Versions []status.VersionView `json:"versions"`
	Warnings []string             `json:"warnings,omitempty"`

	now time.Time
}

func (c Config) canaryStatusCommand() *cobra.Command {
	var output form
	command, _ := c.newCommand("status", "Show the canary, and what members of each version do",
		`Shows the canary, who has what, and what the live members of each version do, as they say
every ten seconds: items of the workqueues that they reconcile, and put back after an error
or to look at them again (RETRIED is the share of these), those that wait, and how long half
of them takes at most (P50) and 99 of 100 (P99, of the slowest member).`,
		cobra.NoArgs, func(ctx context.Context, cmd *cobra.Command, conn *connection, _ []string) error {
			if err := output.validate(); err != nil {
				return err
			}
			r, err := conn.read(ctx)
			if err != nil {
				return err
			}
			s := CanaryStatus{Fleet: r.Fleet, Canary: r.Canary(), Versions: status.Versions(r), Warnings: status.Warnings(r), now: r.Now}
			if r.Fault != nil {
				s.Fault = r.Fault.Error()
			}
			for _, f := range status.Findings(r) {
				if f.Kind == status.Canary && f.Severity != status.Note {
					s.Warnings = append(s.Warnings, f.Message)
				}
			}
			if err := print(cmd.OutOrStdout(), output.value, s, tableCanary); err != nil || r.Fault == nil {
				return err
			}
			return r.Problem()
		})
	output.addFlag(command)
	return command
}

func tableCanary(w io.Writer, s CanaryStatus) {
	switch {
	case s.Fault != "":
		fmt.Fprintln(w, "Whether there is a canary is not known")
	case s.Canary == nil:
		fmt.Fprintln(w, "No canary")
	default:
		fmt.Fprintln(w, canaryLine(s.Canary, s.now))
	}
	if len(s.Versions) > 0 {
		fmt.Fprintln(w)
		tableVersions(w, s.Versions)
	}
	printWarnings(w, s.Warnings)
}

// canaryLine says which version is tried on what, and how far it is.
func canaryLine(v *status.CanaryView, now time.Time) string {
	by := ""
	if v.By != "" {
		by = " by " + status.Plain(v.By)
	}
	begun := map[bool]string{true: "aborted", false: "begun"}[v.Aborted]
	return fmt.Sprintf("Canary %s, %s %s%s: %s", v, begun, orUnknown(ago(v.Since, now)), by, strings.TrimPrefix(v.Standing(), "aborted: "))
}

// tableVersions writes for people what the members of each version have and do.
func tableVersions(w io.Writer, versions []status.VersionView) {
	var lines [][]string
	for _, v := range versions {
		name := cmp.Or(v.Version, "unknown")
		if v.Tried {
			name += " (canary)"
		}
		lines = append(lines, []string{
			name, fmt.Sprint(v.Members), fmt.Sprint(v.Shards),
			status.PercentOf(v.Errors, v.Requests), status.PercentOf(v.Retries, v.Reconciles), number(v.Queued),
			took(v.Wait50), took(v.Wait99), took(v.P50), took(v.P99), rate(v.Requests), rate(v.Reconciles),
		})
	}
	rows(w, []string{
		"VERSION", "MEMBERS", "SHARDS", "ERRORS", "RETRIED", "QUEUED",
		"WAIT-P50", "WAIT-P99", "WORK-P50", "WORK-P99", "REQUESTS/S", "RECONCILES/S",
	}, lines)
}

func rate(x *float64) string {
	if x == nil {
		return ""
	}
	return fmt.Sprintf("%.1f", *x)
}

func took(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	d := time.Duration(*seconds * float64(time.Second))
	if d >= time.Millisecond {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}

// liveVersions returns the versions of the live members.
func liveVersions(r *status.Reading) []string {
	var names []string
	for _, v := range status.Versions(r) {
		if v.Version != "" && v.Version == status.Plain(v.Version) {
			names = append(names, v.Version)
		}
	}
	return names
}
