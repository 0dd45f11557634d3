package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard/skew"
)

// CanaryView is the canary of the plan, and how far it is in place.
type CanaryView struct {
	Version    string   `json:"version"`
	Namespaces []string `json:"namespaces,omitempty"`
	Ranges     []string `json:"ranges,omitempty"`
	// Since is when it was begun or aborted, and By who did it, as the operator wrote it.
	Since   *time.Time `json:"since,omitempty"`
	By      string     `json:"by,omitempty"`
	Aborted bool       `json:"aborted,omitempty"`
	// Members are the live members of the version, Others those of other versions, without drained
	// ones.
	Members []string `json:"members,omitempty"`
	Others  []string `json:"others,omitempty"`
	// Tried are the shards that it is for, and Kept how many of them members of the version hold.
	// Outside are all others, and Astray how many of them members of the version hold.
	Tried   []string `json:"tried,omitempty"`
	Kept    int      `json:"kept"`
	Outside int      `json:"outside"`
	Astray  int      `json:"astray"`
}

// String returns the canary as an operator began it: "v1.38.0 on team-a, team-b".
func (v *CanaryView) String() string {
	return Plain(v.Version) + " on " + Plain(strings.Join(slices.Concat(v.Namespaces, v.Ranges), ", "))
}

// Standing says in words who has what.
func (v *CanaryView) Standing() string {
	text := fmt.Sprintf("%d of %d shards of it with %s of that version", v.Kept, len(v.Tried), Plural(len(v.Members), "member"))
	if v.Aborted {
		text = fmt.Sprintf("aborted: %s of that version", Plural(len(v.Members), "member"))
	}
	return fmt.Sprintf("%s, %d of %d others with %s of others", text, v.Outside-v.Astray, v.Outside, Plural(len(v.Others), "member"))
}

// Unfinished returns what must still happen until everything is where the canary wants it; nil if
// it is, or if the present members leave no choice.
func (v *CanaryView) Unfinished() error {
	switch {
	case len(v.Members) == 0 || len(v.Others) == 0:
		return nil
	case v.Astray > 0:
		return fmt.Errorf("members of %s still hold %d shards that they should not have", Plain(v.Version), v.Astray)
	case v.Kept < len(v.Tried):
		return fmt.Errorf("members of %s hold %d of the %d shards that they should have", Plain(v.Version), v.Kept, len(v.Tried))
	}
	return nil
}

// Canary returns the canary of the plan; nil if there is none.
func (r *Reading) Canary() *CanaryView {
	c := r.Plan.Canary
	if r.Fault != nil || c == nil {
		return nil
	}
	v := &CanaryView{Version: c.Version, Namespaces: c.Namespaces, By: c.By, Aborted: c.Aborted}
	for _, part := range c.Ranges {
		v.Ranges = append(v.Ranges, part.String())
	}
	if since, err := time.Parse(time.RFC3339, c.Since); err == nil {
		v.Since = Stamp(since)
	}
	var drained []string // members of the version
	for _, m := range r.Roster.Members() {
		switch is := leaseapi.IsDrained(m); {
		case r.IsTried(m) && is:
			drained = append(drained, m.Name)
		case r.IsTried(m):
			v.Members = append(v.Members, m.Name)
		case !is:
			v.Others = append(v.Others, m.Name)
		}
	}
	holders := r.Holders()
	for _, s := range r.Plan.Shards() {
		kept := slices.Contains(v.Members, holders[s.ID]) || slices.Contains(drained, holders[s.ID])
		switch tried := r.Plan.Tries(s); {
		case tried:
			v.Tried = append(v.Tried, s.ID.String())
			if kept {
				v.Kept++
			}
		default:
			v.Outside++
			if kept {
				v.Astray++
			}
		}
	}
	return v
}

// IsTried reports whether a member has the version of the plan's canary; false without one.
func (r *Reading) IsTried(m membership.Member) bool {
	return r.Plan.Canary != nil && leaseapi.VersionOf(m) == r.Plan.Canary.Version
}

// versionsOf returns the versions of live members, each once; "unknown" for those that publish
// none.
func (r *Reading) versionsOf(members []string) []string {
	var versions []string
	for _, m := range r.Roster.Members() {
		version := cmp.Or(leaseapi.VersionOf(m), "unknown")
		if slices.Contains(members, m.Name) && !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	return versions
}

// knows reports whether a member of the version was there recently.
func (r *Reading) knows(version string) bool {
	return slices.ContainsFunc(r.Known, func(m membership.Member) bool { return leaseapi.VersionOf(m) == version })
}

// canary reports that a version is tried, and what keeps it from being tried.
func (f *finder) canary() {
	r, v := f.r, f.r.Canary()
	if v == nil {
		return
	}
	severity, text := Note, v.Standing()
	others := r.versionsOf(v.Others)
	switch {
	case v.Aborted && len(v.Members) == 0:
		text = "aborted: its members get nothing, even if they come back, until 'flotilla canary forget'"
	case v.Aborted && len(v.Others) == 0:
		severity, text = Warning, "aborted, but no live member that is not drained has another version, so its members have everything"
	case v.Aborted:
		text = v.Standing() + "; roll them back, then 'flotilla canary forget'"
	case len(v.Members) == 0 && r.knows(v.Version):
		severity, text = Warning, "all members of that version are gone or drained, so everything goes to the others"
	case len(v.Members) == 0 && len(others) > 1:
		severity, text = Warning, fmt.Sprintf("no live member has that version, and members of %s have everything: if one of these is to be tried, abort the canary and begin it with that name", Plain(strings.Join(others, ", ")))
	case len(v.Members) == 0:
		text = "no member of that version is live yet, so the others have everything"
	case len(v.Others) == 0:
		severity, text = Warning, "no member of another version is live and not drained, so its members have everything"
	case v.Unfinished() != nil && v.Since != nil && r.AsOf.Sub(*v.Since) >= stuckAfter:
		severity, text = Warning, v.Unfinished().Error()
	}
	by := ""
	if v.By != "" {
		by = map[bool]string{true: ", aborted by ", false: ", begun by "}[v.Aborted] + Plain(v.By)
	}
	f.add(severity, Canary, AboutPlan, leaseapi.PlanLease(r.Fleet), v.Since, "canary %s%s: %s", v, by, text)
}

// VersionView is what the live members of one version have and do, by what they publish.
type VersionView struct {
	Version string `json:"version"`
	// Tried: the plan's canary is of this version, and has not been aborted.
	Tried   bool `json:"tried,omitempty"`
	Members int  `json:"members"`
	Shards  int  `json:"shards"`
	// Queued is how many items wait; the others are per second, over some ten seconds. Nil if a
	// member does not say.
	Queued     *int64   `json:"queued,omitempty"`
	Reconciles *float64 `json:"reconcilesPerSecond,omitempty"`
	Retries    *float64 `json:"retriesPerSecond,omitempty"`
	// Requests are those of controllers to the API server, and Errors those of them that it refused
	// or could not answer, per second. Nil if a member does not say.
	Requests *float64 `json:"requestsPerSecond,omitempty"`
	Errors   *float64 `json:"errorsPerSecond,omitempty"`
	// P50 is the mean of the members' medians of the time for an item, in seconds, weighted by
	// their numbers of items; P99 is that of the slowest member. Nil if nothing was reconciled.
	P50 *float64 `json:"p50Seconds,omitempty"`
	P99 *float64 `json:"p99Seconds,omitempty"`
	// Wait50 and Wait99 are the same for the time that an item waits before; nil if a member does
	// not say.
	Wait50 *float64 `json:"waitP50Seconds,omitempty"`
	Wait99 *float64 `json:"waitP99Seconds,omitempty"`
}

// Versions returns what each version has and does, the oldest first.
func Versions(r *Reading) []VersionView {
	var views []VersionView
	uses := map[string][]leaseapi.Use{}
	silent := map[string]bool{}
	for _, m := range r.Roster.Members() {
		version := leaseapi.VersionOf(m)
		i := slices.IndexFunc(views, func(v VersionView) bool { return v.Version == version })
		if i < 0 {
			i = len(views)
			c := r.Plan.Canary
			views = append(views, VersionView{Version: version, Tried: c != nil && c.Version == version && !c.Aborted})
		}
		views[i].Members++
		views[i].Shards += r.heldBy(m.Name)
		use, published := leaseapi.UseOn(r.Lease(leaserecord.MemberLease(r.Fleet, m.Name)))
		uses[version] = append(uses[version], use)
		silent[version] = silent[version] || !published || use.Work == nil
	}
	for i := range views {
		if v := &views[i]; !silent[v.Version] {
			v.sum(uses[v.Version])
		}
	}
	slices.SortFunc(views, func(a, b VersionView) int {
		if newer := skew.Newer(a.Version, b.Version); newer || skew.Newer(b.Version, a.Version) {
			return map[bool]int{true: 1, false: -1}[newer]
		}
		return cmp.Compare(a.Version, b.Version)
	})
	return views
}

// sum adds up what the members of the version have published.
func (v *VersionView) sum(uses []leaseapi.Use) {
	v.sumHealth(uses)
	var queued int64
	var reconciles, retries, p50, p99 float64
	for _, u := range uses {
		queued += u.Queued
		n := float64(u.Work.Reconciles) / 1000
		reconciles, retries = reconciles+n, retries+float64(u.Work.Retries)/1000
		p50 += n * float64(u.Work.P50) / 1e6
		p99 = max(p99, float64(u.Work.P99)/1e6)
	}
	v.Queued, v.Reconciles, v.Retries = &queued, &reconciles, &retries
	if reconciles > 0 {
		p50 /= reconciles
		v.P50, v.P99 = &p50, &p99
	}
}

// sumHealth adds up the health of the version's controllers, if all its members publish it.
func (v *VersionView) sumHealth(uses []leaseapi.Use) {
	var requests, errors, reconciles, wait50, wait99 float64
	for _, u := range uses {
		if u.Health == nil {
			return
		}
		requests += float64(u.Health.Requests) / 1000
		errors += float64(u.Health.Errors) / 1000
		n := float64(u.Work.Reconciles) / 1000
		reconciles, wait50 = reconciles+n, wait50+n*float64(u.Health.Wait50)/1e6
		wait99 = max(wait99, float64(u.Health.Wait99)/1e6)
	}
	v.Requests, v.Errors = &requests, &errors
	if reconciles > 0 {
		wait50 /= reconciles
		v.Wait50, v.Wait99 = &wait50, &wait99
	}
}
