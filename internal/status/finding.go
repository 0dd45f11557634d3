package status

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Severity says how much a finding matters.
type Severity string

const (
	// Error: some work is not done, may be done twice, or an operator has to fix something.
	Error Severity = "error"
	// Warning: nothing is lost yet, and it is not as it should be.
	Warning Severity = "warning"
	// Note: as somebody wanted it, and easily forgotten.
	Note Severity = "note"
)

// Kind says what is wrong. The values are stable.
type Kind string

const (
	// NoLeases: there is no Lease of the fleet at all.
	NoLeases Kind = "NoLeases"
	// NobodyRenews: no member has renewed its Lease for longer than that lasts. What else there is to see is as old.
	NobodyRenews Kind = "NobodyRenews"
	// PlanMissing: there is no plan.
	PlanMissing Kind = "PlanMissing"
	// PlanUnreadable: there is a plan that nobody can work by.
	PlanUnreadable Kind = "PlanUnreadable"
	// PlanPutAside: the planner has replaced something unusable, and kept it.
	PlanPutAside Kind = "PlanPutAside"
	// PlanRefused: a live member cannot work by the plan, and is left out of the rings.
	PlanRefused Kind = "PlanRefused"
	// ControllersLacking: the version of a member does not have controllers of the shards that it holds, so that they run
	// without them.
	ControllersLacking Kind = "ControllersLacking"
	// MemberUnfit: a live member gets no shards of a ring, because its version can run some controller
	// only in another scope.
	MemberUnfit Kind = "MemberUnfit"
	// PlannerMissing: nobody holds the plan's Lease, so nobody plans or restores the plan.
	PlannerMissing Kind = "PlannerMissing"
	// RingUnserved: no live member serves a ring.
	RingUnserved Kind = "RingUnserved"
	// PinnedToNobody: shards are pinned to a member that there is not.
	PinnedToNobody Kind = "PinnedToNobody"
	// Unowned: a shard has no unexpired holder, and no older shard covers it. It is an error once
	// that lasts longer than a handoff does.
	Unowned Kind = "Unowned"
	// TwoHolders: two holders say that they run some of the same controllers on some of the same namespaces.
	TwoHolders Kind = "TwoHolders"
	// TwoIncarnations: a process renews a Lease although another one of the same name has become the member.
	TwoIncarnations Kind = "TwoIncarnations"
	// OlderClaim: a held Lease that is not in the plan covers what a shard of the plan runs.
	OlderClaim Kind = "OlderClaim"
	// UnknownHolder: a Lease names a holder that is not a live member.
	UnknownHolder Kind = "UnknownHolder"
	// HandoffStuck: a shard is to change hands and does not.
	HandoffStuck Kind = "HandoffStuck"
	// NotRunning: a shard is held, nothing is in its way, and its holder does not say that it runs.
	NotRunning Kind = "NotRunning"
	// Flapping: a shard changes hands over and over.
	Flapping Kind = "Flapping"
	// LeaseNonsense: fields of a held Lease make no sense, so that others read something else.
	LeaseNonsense Kind = "LeaseNonsense"
	// MemberDisagrees: a live member works by another plan than the one on the Lease.
	MemberDisagrees Kind = "MemberDisagrees"
	// MemberSilent: a member has stopped renewing without having left.
	MemberSilent Kind = "MemberSilent"
	// MemberJoining: a member does not become active.
	MemberJoining Kind = "MemberJoining"
	// MemberLeaving: a member does not come to an end of leaving.
	MemberLeaving Kind = "MemberLeaving"
	// MemberDrained: an operator has drained a member.
	MemberDrained Kind = "MemberDrained"
	// LeaderLocksDiffer: live members wait for different leader locks, so that some may run while
	// somebody else holds one of them.
	LeaderLocksDiffer Kind = "LeaderLocksDiffer"
	// WaitingForLeaderLock: somebody else holds a leader lock and renews it, so the fleet holds no
	// shards.
	WaitingForLeaderLock Kind = "WaitingForLeaderLock"
	// LeaderLockWithoutHolder: somebody else holds a leader lock and does not renew it.
	LeaderLockWithoutHolder Kind = "LeaderLockWithoutHolder"
	// Stopped: an operator has stopped the fleet. It is a warning if that does not come to an end.
	Stopped Kind = "Stopped"
	// StopUnreadable: somebody has written something else where an operator's stop would be.
	StopUnreadable Kind = "StopUnreadable"
	// Canary: a version is tried on some namespaces, or has been aborted. It is a warning where that
	// is not as it should be.
	Canary Kind = "Canary"
	// DrainedInVain: all live members that serve a ring are drained, so that they serve it all the same.
	DrainedInVain Kind = "DrainedInVain"
)

// kinds are all, in the order in which findings of one severity are shown.
var kinds = []Kind{
	NoLeases, NobodyRenews, PlanMissing, PlanUnreadable, LeaderLockWithoutHolder, StopUnreadable, Stopped, WaitingForLeaderLock, TwoHolders, TwoIncarnations, RingUnserved, Unowned, UnknownHolder, OlderClaim, HandoffStuck, NotRunning, Flapping,
	LeaseNonsense, PlanRefused, MemberUnfit, ControllersLacking, LeaderLocksDiffer, MemberDisagrees, MemberSilent, MemberJoining, MemberLeaving, PlannerMissing, PlanPutAside, PinnedToNobody, DrainedInVain, Canary, MemberDrained,
}

// What a finding is about.
const (
	AboutFleet  = "fleet"
	AboutPlan   = "plan"
	AboutRing   = "ring"
	AboutShard  = "shard"
	AboutLease  = "lease"
	AboutMember = "member"
)

// Finding is something that an operator should know of.
type Finding struct {
	Severity Severity `json:"severity"`
	Kind     Kind     `json:"kind"`
	// About is what kind of thing Object names: fleet, plan, ring, shard ("<ring>/<name>"), lease or member.
	About  string `json:"about"`
	Object string `json:"object"`
	// Message is one sentence, plain text.
	Message string `json:"message"`
	// Since is when it began: by the stamps on Leases where they tell, else when it was first seen here. Nil if neither is known.
	Since *time.Time `json:"since,omitempty"`
	// Runbook is the page that says what to do, a path in the project; empty if there is none.
	Runbook string `json:"runbook,omitempty"`
	// RunbookURL is where that page is to be read.
	RunbookURL string `json:"runbookURL,omitempty"`
}

// runbooks are the pages, each named after the alert that leads to it.
var runbooks = map[Kind]string{
	LeaderLockWithoutHolder: page("FlotillaLeaderLockWithoutHolder"),
	NoLeases:                page("FlotillaDown"),
	NobodyRenews:            page("FlotillaDown"),
	PlanMissing:             page("FlotillaWithoutPlan"),
	PlanUnreadable:          page("FlotillaPlanRefused"),
	PlanRefused:             page("FlotillaPlanRefused"),
	MemberDisagrees:         page("FlotillaMembersDisagree"),
	LeaderLocksDiffer:       page("FlotillaLeaderLockNotHeld"),
	RingUnserved:            page("FlotillaShardWithoutOwner"),
	Unowned:                 page("FlotillaShardWithoutOwner"),
	TwoHolders:              page("FlotillaShardWithTwoOwners"),
	TwoIncarnations:         page("FlotillaShardWithTwoOwners"),
	NotRunning:              page("FlotillaShardNotStarting"),
	HandoffStuck:            page("FlotillaHandoffStuck"),
	OlderClaim:              page("FlotillaHandoffStuck"),
	Flapping:                page("FlotillaMemberFlapping"),
}

// runbookBase is where the project's pages are to be read; the alerts have the same.
const runbookBase = "https://github.com/flotilla-kube/flotilla/blob/main/"

func page(alert string) string { return "docs/runbooks/" + alert + ".md" }

// Findings returns what is wrong with the fleet, the worst first. Of what one look cannot tell from the ordinary, it speaks
// only if the reading follows others; see Reading.Following.
func Findings(r *Reading) []Finding {
	f := &finder{r: r, older: r.Older()}
	f.fleet()
	f.plan()
	f.members()
	if r.Fault == nil {
		f.found = append(f.found, planFindings(r, r.Plan)...)
		f.drains()
		f.versions()
		f.canary()
		f.shards()
	}
	f.claims()
	for i := range f.found {
		f.found[i].Message = Plain(f.found[i].Message)
		if f.found[i].Runbook = runbooks[f.found[i].Kind]; f.found[i].Runbook != "" {
			f.found[i].RunbookURL = runbookBase + f.found[i].Runbook
		}
	}
	slices.SortStableFunc(f.found, compareFindings)
	return f.found
}

func compareFindings(a, b Finding) int {
	severities := []Severity{Error, Warning, Note}
	return cmp.Or(
		cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
		cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)),
		strings.Compare(a.About, b.About),
		CompareNatural(a.Object, b.Object),
	)
}

// Worst returns the severity of the worst finding, empty if there is none.
func Worst(findings []Finding) Severity {
	if len(findings) == 0 {
		return ""
	}
	return slices.MinFunc(findings, compareFindings).Severity
}

// Warnings returns what is odd about the fleet as a whole, whatever the command: the messages of those findings that are about
// fleet, plan and rings.
func Warnings(r *Reading) []string { return warningsOf(Findings(r)) }

func warningsOf(findings []Finding) []string {
	var found []string
	for _, f := range findings {
		switch f.Kind {
		case NoLeases, NobodyRenews, StopUnreadable, Stopped, PlanRefused, PlanPutAside, RingUnserved, PinnedToNobody, DrainedInVain:
			found = append(found, f.Message)
		}
	}
	return found
}
