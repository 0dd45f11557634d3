package heartbeat

import "time"

// Phase is an incarnation's phase. It only moves forward.
type Phase int

const (
	// Waiting: the incarnation does not hold the member's Lease yet.
	Waiting Phase = iota
	// Live: it holds the member's Lease and renews it.
	Live
	// Over: its rights have ended for good. The process ends, and its next start is another
	// incarnation.
	Over
)

func (p Phase) String() string { return [...]string{"Waiting", "Live", "Over"}[p] }

// Action is what a step asks for.
type Action int

const (
	// Wait: nothing, until something changes or Output.Wake has come.
	Wait Action = iota
	// Create the member's Lease with Output.Member.
	Create
	// Acquire: update the member's Lease with Output.Member, which names this incarnation for the
	// first time.
	Acquire
	// Renew: update the member's Lease with Output.Member. This is the heartbeat.
	Renew
	// Read all Leases of the fleet in one consistent list, because the watch is behind.
	Read
	// Release: update the member's Lease with Output.Member, which lists this incarnation as ended.
	Release
	// End: all rights of this incarnation end now, for Output.Reason.
	End
)

func (a Action) String() string {
	return [...]string{"Wait", "Create", "Acquire", "Renew", "Read", "Release", "End"}[a]
}

// Beat is a heartbeat that was answered but is not confirmed yet.
type Beat struct {
	// Start is when its request started.
	Start time.Time
	// Answered is when its answer arrived.
	Answered time.Time
	// Version of the Lease after it; 0 if there is no pending heartbeat.
	Version Version
	// Through is how far the watch had come when a step first saw the answer.
	Through Version
}

// State is what an incarnation keeps between steps. The zero value is Waiting.
type State struct {
	// Phase of the incarnation.
	Phase Phase
	// Acquired is when the request that acquired the Lease started.
	Acquired time.Time
	// Confirmed is when the last confirmed heartbeat started; zero if none is confirmed.
	Confirmed time.Time
	// Pending is the heartbeat that is not confirmed yet. No other is sent before it is.
	Pending Beat
	// Sent is when the last heartbeat started, answered or not.
	Sent time.Time
	// NotBefore is when the next request may be sent after a failed one.
	NotBefore time.Time
}

// right returns the incarnation's right.
func (s State) right(timing Timing) Right {
	if s.Phase != Live || s.Confirmed.IsZero() {
		return Right{}
	}
	return Right{Until: s.Confirmed.Add(timing.RenewDeadline)}
}

// Deadline returns when the incarnation ends unless a heartbeat is confirmed before.
func (s State) Deadline(timing Timing) time.Time {
	if s.Confirmed.IsZero() {
		return s.Acquired.Add(timing.RenewDeadline)
	}
	return s.Confirmed.Add(timing.RenewDeadline)
}

// Beaten returns the state after a Create, Acquire or Renew that started at start succeeded at now
// and gave the Lease this version.
func (s State) Beaten(start, now time.Time, version Version) State {
	switch s.Phase {
	case Over:
		return s
	case Waiting:
		s.Phase, s.Acquired = Live, start
	}
	s.Pending, s.NotBefore = Beat{Start: start, Answered: now, Version: version}, time.Time{}
	return s
}

// Done returns the state after a Read or Release succeeded.
func (s State) Done() State {
	s.NotBefore = time.Time{}
	return s
}

// Failed returns the state after a request that started at start failed or got no answer. After a
// conflict the caller reads the Lease again, and the next request may follow at once.
func (s State) Failed(start time.Time, conflict bool, timing Timing) State {
	s.NotBefore = start
	if !conflict {
		s.NotBefore = start.Add(timing.RetryPeriod)
	}
	return s
}

// Right is an incarnation's right to use its claims, until a moment by its own clock. The zero
// value is no right.
type Right struct {
	// Until is when the right ends unless a heartbeat is confirmed before.
	Until time.Time
}

// Valid reports whether a write under a held claim may start at now, which must be a fresh reading
// of the process's clock.
func (r Right) Valid(now time.Time) bool { return now.Before(r.Until) }
