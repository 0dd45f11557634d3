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
	// Warning: nothing is lost yet, but something is not as it should be.
	Warning Severity = "warning"
	// Note: intended, and easily forgotten.
	Note Severity = "note"
)

// Kind says what is wrong. The values are stable.
type Kind string

const (
	// NoLeases: the fleet has no Leases at all.
	NoLeases Kind = "NoLeases"
	// NobodyRenews: no member has renewed its Lease for longer than the Lease lasts. Everything
	// else shown is as old.
	NobodyRenews Kind = "NobodyRenews"
	// PlanMissing: there is no plan.
	PlanMissing Kind = "PlanMissing"
	// PlanUnreadable: there is a plan that nobody can work by.
	PlanUnreadable Kind = "PlanUnreadable"
	// PlanPutAside: the planner has replaced something unusable, and kept it.
	PlanPutAside Kind = "PlanPutAside"
	// PlanRefused: a live member cannot work by the plan, and is left out of the rings.
	PlanRefused Kind = "PlanRefused"
	// ControllersLacking: a member's version does not have some controllers of the shards that it
	// holds, so that they run without them.
	ControllersLacking Kind = "ControllersLacking"
	// MemberUnfit: a live member gets no shards of a ring, because its version can run some
	// controller only in another scope.
	MemberUnfit Kind = "MemberUnfit"
	// PlannerMissing: nobody holds the plan's Lease, so nobody plans or restores the plan.
	PlannerMissing Kind = "PlannerMissing"
	// RingUnserved: no live member serves a ring.
	RingUnserved Kind = "RingUnserved"
	// PinnedToNobody: shards are pinned to a member that does not exist.
	PinnedToNobody Kind = "PinnedToNobody"
	// Unowned: a shard has no unexpired holder, and no older shard covers it. It is an error once
	// it lasts longer than a handoff.
	Unowned Kind = "Unowned"
	// TwoHolders: two holders say that they run some of the same controllers on some of the same
	// namespaces.
	TwoHolders Kind = "TwoHolders"
	// TwoIncarnations: a process renews a Lease although another one of the same name has become
	// the member.
	TwoIncarnations Kind = "TwoIncarnations"
	// OlderClaim: a held Lease that is not in the plan covers what a shard of the plan runs.
	OlderClaim Kind = "OlderClaim"
	// UnknownHolder: a Lease names a holder that is not a live member.
	UnknownHolder Kind = "UnknownHolder"
	// HandoffStuck: a shard should change hands and does not.
	HandoffStuck Kind = "HandoffStuck"
	// NotRunning: a shard is held, nothing stands in its way, and its holder does not say that it
	// runs.
	NotRunning Kind = "NotRunning"
	// Flapping: a shard keeps changing hands.
	Flapping Kind = "Flapping"
	// LeaseNonsense: fields of a held Lease make no sense, so that readers interpret it
	// differently.
	LeaseNonsense Kind = "LeaseNonsense"
	// MemberDisagrees: a live member works by a plan other than the one on the Lease.
	MemberDisagrees Kind = "MemberDisagrees"
	// MemberSilent: a member has stopped renewing without having left.
	MemberSilent Kind = "MemberSilent"
	// MemberJoining: a member is still joining.
	MemberJoining Kind = "MemberJoining"
	// MemberLeaving: a member is still leaving.
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
	// Stopped: an operator has stopped the fleet. It is a warning if it does not stop completely.
	Stopped Kind = "Stopped"
	// StopUnreadable: the annotation that stops the fleet has a value that cannot be read.
	StopUnreadable Kind = "StopUnreadable"
	// Canary: a version is tried on some namespaces, or has been aborted. It is a warning if it is
	// not in place.
	Canary Kind = "Canary"
	// DrainedInVain: all live members that serve a ring are drained, so they serve it anyway.
	DrainedInVain Kind = "DrainedInVain"
)

// kinds are all kinds, in the order in which findings of one severity are shown.
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

// Finding is something that an operator should know.
type Finding struct {
	Severity Severity `json:"severity"`
	Kind     Kind     `json:"kind"`
	// About is the kind of thing that Object names: fleet, plan, ring, shard ("<ring>/<name>"),
	// lease or member.
	About  string `json:"about"`
	Object string `json:"object"`
	// Message is one sentence, plain text.
	Message string `json:"message"`
	// Since is when it began: by the timestamps on Leases if they show it, else when it was first
	// seen here. Nil if neither is known.
	Since *time.Time `json:"since,omitempty"`
	// Runbook is the page that says what to do, a path in the project; empty if there is none.
	Runbook string `json:"runbook,omitempty"`
	// RunbookURL is the address of that page.
	RunbookURL string `json:"runbookURL,omitempty"`
}

// runbooks are the pages, each named after its alert.
var runbooks = map[Kind]string{
	LeaderLockWithoutHolder: page("FlotillaLeaderLockWithoutHolder"),
	NoLeases:                page("FlotillaDown"),
	NobodyRenews:            page("FlotillaDown"),
	PlanMissing:             page("FlotillaWithoutPlan"),
	PlanUnreadable:          page("FlotillaPlanRefused"),
	PlanRefused:             page("FlotillaPlanRefused"),
	ControllersLacking:      page("FlotillaControllersLacking"),
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

// runbookBase is the address of the project's pages; the alerts have the same.
const runbookBase = "https://github.com/flotilla-kube/flotilla/blob/main/"

func page(alert string) string { return "docs/runbooks/" + alert + ".md" }

// Findings returns what is wrong with the fleet, the worst first. It reports what a single look
// cannot distinguish from normal operation only if the reading follows others; see
// Reading.Following.
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

// Warnings returns what is odd about the fleet as a whole, whatever the command: the messages of
// the findings about fleet, plan and rings.
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
