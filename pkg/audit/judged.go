package audit

// Judged tells how much the rules about objects had to judge. Zeros mean that they have proved nothing, as with a log
// that was written without objects.
type Judged struct {
	// Creates are pods that the fleet created for an owner, each held against the number that the owner wanted.
	Creates int `json:"podsCreated"`
	// Deletes are pods of an owner that the fleet deleted, each of which it had to have a reason for.
	Deletes int `json:"podsDeleted"`
	// Collected are objects that the fleet's garbage collector deleted.
	Collected int `json:"collected"`
	// ReplicaSets, Jobs and EndpointSlices are those that the fleet created for a Deployment, CronJob or Service, each held
	// against those that there were.
	ReplicaSets    int `json:"replicaSetsCreated"`
	Jobs           int `json:"jobsCreated"`
	EndpointSlices int `json:"endpointSlicesCreated"`
	// Skipped counts, by reason, what could have been judged if more was known, and what was acquitted because something
	// could have been the reason. Who is skipped may be guilty.
	Skipped map[string]int `json:"skipped"`
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

// unanswered is why nobody knows what an owner wanted.
const unanswered = "a write of the owner ended without an answer"

// incomplete returns why what an owner wanted is not known at a moment; empty if it is known. The state in force has the
// number i.
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
