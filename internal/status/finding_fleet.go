package status

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/election/membership"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// settlesAfter is how long a member may take to join or to leave: --rebalance-delay and
// --handoff-timeout are seconds.
const settlesAfter = 5 * time.Minute

// finder collects findings about one reading.
type finder struct {
	r     *Reading
	older []election.Observation
	found []Finding
}

func (f *finder) add(severity Severity, kind Kind, about, object string, since *time.Time, format string, args ...any) {
	f.found = append(f.found, Finding{Severity: severity, Kind: kind, About: about, Object: Plain(object), Since: since, Message: fmt.Sprintf(format, args...)})
}

// fleet checks whether there are any members.
func (f *finder) fleet() {
	r := f.r
	if len(r.sorted) == 0 {
		f.add(Error, NoLeases, AboutFleet, r.Fleet, nil, "no Lease of fleet %q is in this namespace: see --fleet-name and --leader-elect-resource-namespace", r.Fleet)
		return
	}
	switch silence, seen := r.Silence(); {
	case seen:
		f.add(Error, NobodyRenews, AboutFleet, r.Fleet, Stamp(r.lastRenewal), "no member has renewed its Lease for %s, as seen from here: none runs, or the API server is out of reach", Short(silence))
	case silence > 0:
		f.add(Error, NobodyRenews, AboutFleet, r.Fleet, Stamp(r.lastRenewal), "no member has renewed its Lease for %s, by the clock here: none runs, or the clocks differ", Short(silence))
	}
}

// plan checks the plan's Lease.
func (f *finder) plan() {
	r := f.r
	name := leaseapi.PlanLease(r.Fleet)
	switch {
	case len(r.sorted) == 0:
		return
	case errors.Is(r.Fault, leaseapi.ErrNoPlan):
		f.add(Error, PlanMissing, AboutPlan, name, nil, "%v", r.Problem())
	case r.Fault != nil:
		f.add(Error, PlanUnreadable, AboutPlan, name, nil, "%v", r.Problem())
	}
	if r.PlanLease == nil {
		return
	}
	if r.PlanLease.Annotations[leaseapi.RejectedAnnotation] != "" {
		f.add(Warning, PlanPutAside, AboutPlan, name, nil, "a plan that could not be used was put aside: annotation %s of Lease %s", leaseapi.RejectedAnnotation, name)
	}
	lease := r.Lease(name)
	since, ago := r.endOf(lease)
	if _, seen := r.stood(condition{what: ownerless, object: name}); !r.IsHeld(lease) && max(ago, seen) >= StandsAfter {
		f.add(Warning, PlannerMissing, AboutPlan, name, since, "nobody holds Lease %s%s: nobody balances the plan, or restores it", name, forTime(ago))
	}
}

// endOf returns when, and how long ago, the holder of a Lease that is not held released it or
// expired.
func (r *Reading) endOf(o election.Observation) (since *time.Time, ago time.Duration) {
	end := o.LastStamp()
	if !o.Exists || end.IsZero() {
		return nil, 0
	}
	if o.Holder != "" {
		end = end.Add(o.Duration)
	}
	return Stamp(end), max(0, r.AsOf.Sub(end))
}

// forTime returns " for 20s", or nothing if the time is unknown.
func forTime(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return " for " + Short(d)
}

// planOfMember returns the generation and the digest of a member's plan, as the member says.
func planOfMember(m membership.Member) (generation, digest string) {
	return m.Annotations[leaseapi.GenerationAnnotation], m.Annotations[leaseapi.PlanAnnotation]
}

// members checks each member.
func (f *finder) members() {
	r := f.r
	for _, o := range r.sorted {
		if name, is := leaseapi.MemberOn(r.Fleet, o); is {
			f.member(name, o)
		}
	}
	f.leaderLocks()
	f.stopped()
	f.waits()
}

// leaderLocks checks whether the live members wait for the same ones.
func (f *finder) leaderLocks() {
	by := map[string][]string{}
	for _, m := range f.r.Roster.Members() {
		leaderLocks := orNone(m.Annotations[leaseapi.LeaderLocksAnnotation])
		by[leaderLocks] = append(by[leaderLocks], m.Name)
	}
	if len(by) < 2 {
		return
	}
	var texts []string
	for _, leaderLocks := range slices.Sorted(maps.Keys(by)) {
		texts = append(texts, fmt.Sprintf("%s: %s", leaderLocks, strings.Join(by[leaderLocks], ", ")))
	}
	f.add(Warning, LeaderLocksDiffer, AboutFleet, f.r.Fleet, nil, "live members wait for different leader locks, see --leader-lock: %s", strings.Join(texts, "; "))
}

func (f *finder) member(name string, o election.Observation) {
	r := f.r
	m, live := r.Roster.Get(name)
	recent := slices.ContainsFunc(r.Known, func(k membership.Member) bool { return k.Name == name })
	switch {
	case !live && o.Holder != "" && leaserecord.MemberOf(o.Holder) != name:
		f.add(Warning, UnknownHolder, AboutMember, name, Stamp(o.AcquireTime), "Lease %s of member %s names %s, which is no incarnation of it", o.Name, name, Plain(o.Holder))
		return
	case !live && (o.Holder != "" || o.IsStruck()) && recent && len(r.Roster.Members()) > 0:
		f.add(Warning, MemberSilent, AboutMember, name, Stamp(o.RenewTime), "member %s has not renewed its Lease%s, and has not released it: it has died, or cannot reach the API server", name, forTime(r.AsOf.Sub(o.RenewTime)))
	}
	if drain := o.Annotations[leaseapi.DrainAnnotation]; drain != "" && (live || recent) {
		f.add(Note, MemberDrained, AboutMember, name, parseStamp(drain), "member %s is drained%s and gets no shards, until 'flotilla undrain %s'", name, sinceText(parseStamp(drain)), name)
	}
	if !live {
		return
	}
	if there := r.AsOf.Sub(o.AcquireTime); m.State == membership.Joining && there > settlesAfter {
		f.add(Warning, MemberJoining, AboutMember, name, Stamp(o.AcquireTime), "member %s has been joining for %s: it gets no shards while another member is active", name, Short(there))
	}
	if since, d := r.stood(condition{what: leaving, object: m.Incarnation}); d >= settlesAfter {
		f.add(Warning, MemberLeaving, AboutMember, name, since, "member %s has been leaving for at least %s", name, Short(d))
	}
	f.disagreeing(m)
	if o.Problem != "" {
		f.add(Warning, LeaseNonsense, AboutMember, name, nil, "Lease %s of member %s: %s", o.Name, name, o.Problem)
	}
}

// disagreeing checks a live member's plan.
func (f *finder) disagreeing(m membership.Member) {
	r := f.r
	if text := m.Annotations[leaseapi.RefusedAnnotation]; text != "" {
		f.add(Error, PlanRefused, AboutMember, m.Name, nil, "member %s refuses plan generation %s", m.Name, Plain(text))
	}
	if r.Fault != nil {
		return
	}
	c, differs := r.disagreement(m)
	if since, d := r.stood(c); differs && d >= StandsAfter {
		generation, digest := planOfMember(m)
		severity := Warning
		if d >= stuckAfter {
			severity = Error
		}
		f.add(severity, MemberDisagrees, AboutMember, m.Name, since, "member %s has worked for at least %s by plan generation %s, digest %s; on the Lease is generation %d, digest %s",
			m.Name, Short(d), orNone(generation), orNone(digest), r.Plan.Generation, r.Plan.Digest())
	}
}

func orNone(text string) string {
	if text == "" {
		return "(none)"
	}
	return Plain(text)
}

// parseStamp reads a time from an annotation; nil if it is not a time.
func parseStamp(text string) *time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil
	}
	return Stamp(t)
}

func sinceText(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " since " + t.Format(time.RFC3339)
}

// drains looks for drained members that serve a ring anyway.
func (f *finder) drains() {
	r := f.r
	for _, ring := range r.Plan.Rings {
		var drained []string
		for _, name := range leaseapi.ServersOf(r.Roster.Members(), ring.Name) {
			if m, _ := r.Roster.Get(name); leaseapi.IsDrained(m) {
				drained = append(drained, name)
			}
		}
		if len(drained) > 0 {
			f.add(Warning, DrainedInVain, AboutRing, ring.Name, nil, "all live members that serve ring %s are drained (%s), so they serve it all the same", ring.Name, strings.Join(drained, ", "))
		}
	}
}

// planFindings returns what a plan needs of members that do not exist.
func planFindings(r *Reading, plan shard.Plan) []Finding {
	f := &finder{r: r}
	for _, ring := range plan.Rings {
		if len(leaseapi.ServersOf(r.Roster.Members(), ring.Name)) == 0 {
			f.add(Error, RingUnserved, AboutRing, ring.Name, nil, "ring %s is served by no live member", ring.Name)
		}
		known := leaseapi.ServersOf(withoutDrains(r.Known), ring.Name)
		strangers := map[string][]string{}
		for _, s := range ring.Shards {
			if name := s.Pin; name != "" && !slices.Contains(known, name) {
				strangers[name] = append(strangers[name], s.ID.String())
			}
		}
		for _, name := range slices.Sorted(maps.Keys(strangers)) {
			f.add(Warning, PinnedToNobody, AboutRing, ring.Name, nil, "%s pinned to %q, which is not a member that serves ring %s", strings.Join(strangers[name], ", "), name, ring.Name)
		}
	}
	return f.found
}

// withoutDrains returns the members as if none were drained: a drained member comes back.
func withoutDrains(members []membership.Member) []membership.Member {
	var out []membership.Member
	for _, m := range members {
		m.Annotations = maps.Clone(m.Annotations)
		delete(m.Annotations, leaseapi.DrainAnnotation)
		out = append(out, m)
	}
	return out
}

// PlanWarnings returns what a plan needs of members that do not exist.
func PlanWarnings(r *Reading, plan shard.Plan) []string {
	var found []string
	for _, f := range planFindings(r, plan) {
		found = append(found, f.Message)
	}
	return found
}
