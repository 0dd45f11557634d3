package audit

// Judged says how much the rules about objects had to judge. Zeros mean that they have proved
// nothing, as with a log that was written without objects.
type Judged struct {
	// Creates counts pods that the fleet created for an owner, each compared with the number that
	// the owner wanted.
	Creates int `json:"podsCreated"`
	// Deletes counts pods with an owner that the fleet deleted, each of which needed a reason.
	Deletes int `json:"podsDeleted"`
	// Collected counts objects that the fleet's garbage collector deleted.
	Collected int `json:"collected"`
	// ReplicaSets, Jobs and EndpointSlices count those that the fleet created for a Deployment,
	// CronJob or Service, each compared with those that existed.
	ReplicaSets    int `json:"replicaSetsCreated"`
	Jobs           int `json:"jobsCreated"`
	EndpointSlices int `json:"endpointSlicesCreated"`
	// Skipped counts, by reason, what the log is not enough to judge, and what was acquitted
	// because there is a possible reason. What is skipped may be a violation.
	Skipped map[string]int `json:"skipped"`
}

// Total returns how many objects were judged.
func (j Judged) Total() int {
	return j.Creates + j.Deletes + j.Collected + j.ReplicaSets + j.Jobs + j.EndpointSlices
}

// bench judges the world.
type bench struct {
	*world
	judged  Judged
	convict func(e event, kind Kind, format string, args ...any)
}

func (b *bench) skip(reason string) { b.judged.Skipped[reason]++ }

func (b *bench) sit() {
	b.judgeCreations()
	b.judgeDeletions()
	b.judgeSiblings()
}

// accuse convicts of what rests on everything that the log shows since a moment, unless the log
// lacks a part of that.
func (b *bench) accuse(e event, since moment, kind Kind, format string, args ...any) {
	for _, gap := range b.gaps {
		if since.received.Before(gap.answered) && gap.received.Before(e.Answered.Time) {
			b.skip("a part of the log is missing: " + string(kind))
			return
		}
	}
	b.convict(e, kind, format, args...)
}

// Why nobody knows what an owner wanted.
const (
	unanswered = "a write of the owner ended without an answer"
	unlogged   = "a write of the owner is not in the log"
)

// incomplete returns why it is unknown what an owner wanted at a moment; empty if it is known. i is
// the number of the state in force.
func (b *bench) incomplete(o *owner, m moment) (i int, reason string) {
	switch {
	case o == nil, !o.created:
		return -1, "the owner's creation is not in the log"
	}
	if i = o.at(m.version); i < 0 || o.states[0].bare || o.states[0].scaled {
		return -1, "the owner's creation is not in the log"
	}
	return i, ""
}
