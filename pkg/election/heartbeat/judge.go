package heartbeat

import (
	"maps"
	"slices"
	"time"
)

// JudgeAction is what a judge asks for.
type JudgeAction int

const (
	// JudgeWait: nothing, until something changes or JudgeOutput.Wake has come.
	JudgeWait JudgeAction = iota
	// JudgeRestore: create the member's Lease with JudgeOutput.Member, so that it can be judged. It
	// names the holder that shards' Leases name, which keeps renewing if it lives.
	JudgeRestore
	// JudgeStrike: update the member's Lease with JudgeOutput.Member, which lists
	// JudgeOutput.Dead as ended.
	JudgeStrike
)

func (a JudgeAction) String() string { return [...]string{"Wait", "Restore", "Strike"}[a] }

// JudgeInput is everything that the judgement of one member depends on. Every live member of a
// fleet judges every other member. Several may strike at the same time: one succeeds.
type JudgeInput struct {
	// Now is the clock's reading for this step.
	Now time.Time
	// Right of the judging incarnation: without a valid one it judges nobody.
	Right Right
	// Member is what is known about the judged member's Lease.
	Member MemberView
	// Holders are the member's incarnations that shards' Leases name, each with when this process
	// last saw such a Lease change. A member without any is not judged.
	Holders map[string]time.Time
	// Delay is how long to leave the request to the judges that come before this process. It must
	// not be negative.
	Delay time.Duration
	// NotBefore is when the next request may be sent after a failed one.
	NotBefore time.Time
	// Timing of the fleet.
	Timing Timing
	// Busy is set while a judge's request for this Lease is under way.
	Busy bool
}

// JudgeOutput is what a judge asks for.
type JudgeOutput struct {
	// Action to carry out.
	Action JudgeAction
	// Dead is the incarnation concerned.
	Dead string
	// Member is what to write.
	Member MemberRecord
	// Wake is when to step again even if nothing changes; zero means only on a change.
	Wake time.Time
}

// JudgeStep decides how to list dead holders of shards' Leases as ended on their member's Lease. It
// is pure. For the holders that are not listed yet, in order, the first row that applies is taken.
// "still" means not seen to change for LeaseDuration. Delay is added to each time, and requests
// wait while Busy and until NotBefore.
//
//	Condition                                                       Action
//	no right, nothing known of the member's Lease, nobody to judge  Wait
//	the member's Lease absent for RetryPeriod                       Restore
//	it names the holder, and is still                               Strike
//	it names another or nobody, it and the shards' Leases are still Strike
//	otherwise                                                       Wait
func JudgeStep(in JudgeInput) JudgeOutput {
	var next JudgeOutput
	if !in.Right.Valid(in.Now) || !in.Member.Known() {
		return next
	}
	for _, dead := range slices.Sorted(maps.Keys(in.Holders)) {
		if in.Member.HasEnded(dead) {
			continue
		}
		out, at := in.judge(dead)
		may, wake := allowed(in.Busy, in.Now, later(at.Add(in.Delay), in.NotBefore))
		if may {
			return out
		}
		if next.Wake.IsZero() || wake.Before(next.Wake) {
			next.Wake = wake
		}
	}
	return next
}

// judge returns what to do about a holder, and when.
func (in JudgeInput) judge(dead string) (JudgeOutput, time.Time) {
	m := in.Member
	if !m.Exists {
		// A live holder recreates its Lease by itself.
		write := MemberRecord{Holder: dead, Beat: beatAt(in.Now, 0), Duration: in.Timing.LeaseDuration, Protocol: Protocol}
		return JudgeOutput{Action: JudgeRestore, Dead: dead, Member: write}, m.Seen.Add(in.Timing.RetryPeriod)
	}
	at := m.endableAt(dead, in.Timing.LeaseDuration)
	if m.Holder != dead {
		// Somebody may have forged this name over that of a holder that has not seen that yet.
		at = later(at, in.Holders[dead].Add(in.Timing.LeaseDuration))
	}
	return JudgeOutput{Action: JudgeStrike, Dead: dead, Member: m.ended(dead)}, at
}
