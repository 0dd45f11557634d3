package election

import (
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/heartbeat"
	"github.com/flotilla-kube/flotilla/pkg/plant"
)

// Heartbeat is what keeps alive the claims of a member that do not renew their Leases themselves.
// [Membership] is one. Its methods are safe for concurrent use and do not block.
type Heartbeat interface {
	// Confirmed returns the start of the last heartbeat that is confirmed, and whether rights
	// come of it: they do until RenewDeadline after it, if the membership has not ended before.
	// It is zero and false if none is.
	Confirmed() (start time.Time, right bool)
}

// follow is Idle for a claim that follows a heartbeat: heartbeat.ClaimStep decides.
func (in Input) follow() Output {
	obs := in.Observation
	decided := heartbeat.ClaimStep(in.claim())
	out := Output{Action: Wait, State: in.State, Reason: Reason(decided.Reason), Wake: decided.Wake, Settled: decided.Settled}
	out.State.TermAsked = decided.State.Asked
	switch decided.Action {
	case heartbeat.ClaimCreate:
		out.Action, out.Term = Create, in.termOf(decided)
	case heartbeat.ClaimAcquire:
		out.Action, out.Term = Acquire, in.termOf(decided)
	case heartbeat.ClaimRelease:
		out.Action, out.Term = Release, obs.Transitions
	}
	// Once the incarnation may be listed as ended, nobody waits for the release.
	over := in.Confirmed.Add(in.Timing.LeaseDuration)
	if !in.want() && obs.Exists && obs.Holder == in.Self && !in.Busy && !in.Now.Before(over) {
		return Output{Action: Wait, State: in.State, Settled: true}
	}
	if decided.Reason == heartbeat.ReasonHeld && obs.Exists && in.Ask && obs.NextHolder() != in.Self && !in.Busy {
		return in.ask(out)
	}
	return out
}

// claim is the input as heartbeat.ClaimStep has it.
func (in Input) claim() heartbeat.ClaimInput {
	obs, s := in.Observation, in.State
	out := heartbeat.ClaimInput{
		Self: in.Self, Now: in.Now, Want: in.want(), Leave: in.leave(),
		Shard: heartbeat.ShardView{
			ShardRecord: heartbeat.ShardRecord{Holder: obs.Holder, Term: obs.Transitions, Released: obs.IsReleased()},
			Exists:      obs.Exists, Seen: obs.Seen, HighTerm: obs.HighTerm,
		},
		Ended:  obs.HolderEnded(),
		State:  heartbeat.ClaimState{Term: s.Term, Asked: s.TermAsked, NotBefore: s.NotBefore},
		Timing: heartbeat.Timing(in.Timing),
		Busy:   in.Busy,
	}
	if s.held() {
		out.State.Phase, out.Working = heartbeat.Held, true
	}
	if in.Right {
		out.Right.Until = in.Confirmed.Add(in.Timing.RenewDeadline)
	}
	return out
}

func (in Input) termOf(decided heartbeat.ClaimOutput) int32 {
	if plant.TermKept {
		return in.nextTerm()
	}
	return decided.Shard.Term
}
