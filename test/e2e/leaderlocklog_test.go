package e2e

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// managerUser is the identity of the process itself, which it uses for its election and for its
// controllers' service accounts.
const managerUser = "system:kube-controller-manager"

// apiServerUser names the holder of a Lease in a coordinated election.
const apiServerUser = "system:apiserver"

// ofController reports whether a controller sent the request. It excludes the process's own
// requests, for its election and its controllers' identities, reviews, and Events, which are
// recorded late.
func ofController(e *harness.Event) bool {
	r := e.ObjectRef
	switch {
	case !e.Mutating(), r.Resource == "events", r.APIGroup == "authentication.k8s.io", r.APIGroup == "authorization.k8s.io", r.Resource == "serviceaccounts" && r.Subresource == "token":
		return false
	case e.User.Username == managerUser:
		return r.Resource != "leases" && r.Resource != "leasecandidates" && r.Resource != "serviceaccounts"
	default:
		return true
	}
}

// lockState is the state of the Lease after one write. The write took effect between received and
// answered.
type lockState struct {
	version            uint64
	holder             string
	process            string // of the holder; empty if nobody holds it
	received, answered time.Time
	duration           time.Duration
}

// lockTerm is a period in which the Lease named the same holder. A current term has no end.
type lockTerm struct {
	process     string
	holder      string
	first, last lockState
	end         lockState
}

func (t lockTerm) ended() bool { return t.end.version > 0 }

// released reports whether the holder cleared the Lease at the end, rather than let it expire.
func (t lockTerm) released() bool { return t.ended() && t.end.holder == "" }

// lockWrite is one write of a controller.
type lockWrite struct {
	*harness.Event
	process string
	version uint64 // 0 if the answer has none
}

// lockFault is a write of a process that the Lease did not name.
type lockFault struct {
	write lockWrite
	late  time.Duration
	// holder is the process that the Lease named when the write took effect; empty for none.
	holder string
}

func (f lockFault) String() string {
	return fmt.Sprintf("%s, %v after its term had ended; the Lease named %q", f.write.Event, f.late.Round(time.Millisecond), f.holder)
}

type answeredVersion struct {
	answered time.Time
	highest  uint64
}

// lockLog is what an audit log says about one Lease and the processes that may write under it.
type lockLog struct {
	states []lockState
	terms  []lockTerm
	writes []lockWrite
	// versions are the highest versions answered so far, by time.
	versions []answeredVersion
	// judged are the processes that have ever held the Lease, whose writes count.
	judged map[string]bool
}

// readLeaderLockLog reads who held a Lease in kube-system, and what the controllers of those
// processes wrote. counts reports whether a write requires the Lease.
func readLeaderLockLog(log io.Reader, lease string, counts func(*harness.Event) bool) (*lockLog, error) {
	l := &lockLog{judged: map[string]bool{}}
	processes := map[string]string{} // by holder
	err := harness.Events(log, func(e *harness.Event) error {
		if !e.Succeeded() || !e.Mutating() {
			return nil
		}
		version := e.Version()
		if version > 0 {
			l.versions = append(l.versions, answeredVersion{e.StageTimestamp.Time, version})
		}
		if e.IsLease() && e.ObjectRef.Name == lease {
			return l.addState(e, processes)
		}
		if ofController(e) && counts(e) {
			e.ResponseObject, e.RequestObject = nil, nil
			l.writes = append(l.writes, lockWrite{Event: e, process: e.Process(), version: version})
		}
		return nil
	})
	l.finish(processes)
	return l, err
}

func (l *lockLog) addState(e *harness.Event, processes map[string]string) error {
	var lease coordinationv1.Lease
	if err := e.Answer(&lease); err != nil {
		return fmt.Errorf("%s: %w", e, err)
	}
	s := lockState{version: e.Version(), holder: ptr.Deref(lease.Spec.HolderIdentity, ""), received: e.RequestReceivedTimestamp.Time, answered: e.StageTimestamp.Time}
	s.duration = time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if e.Verb == "delete" {
		s.holder = ""
	}
	if s.holder != "" && processes[s.holder] == "" && e.User.Username != apiServerUser {
		processes[s.holder] = e.Process() // A name belongs to its first writer, unless that writer chooses holders for others.
	}
	l.states = append(l.states, s)
	return nil
}

func (l *lockLog) finish(processes map[string]string) {
	slices.SortFunc(l.versions, func(a, b answeredVersion) int { return a.answered.Compare(b.answered) })
	for i := 1; i < len(l.versions); i++ {
		l.versions[i].highest = max(l.versions[i].highest, l.versions[i-1].highest)
	}
	slices.SortStableFunc(l.states, func(a, b lockState) int { return cmp.Compare(a.version, b.version) })
	for i := range l.states {
		s := &l.states[i]
		s.process = processes[s.holder]
		last := len(l.terms) - 1
		open := last >= 0 && !l.terms[last].ended()
		if open && l.terms[last].holder == s.holder {
			l.terms[last].last = *s
			continue
		}
		if open {
			l.terms[last].end = *s
		}
		if s.holder != "" {
			l.judged[s.process] = true
			l.terms = append(l.terms, lockTerm{process: s.process, holder: s.holder, first: *s, last: *s})
		}
	}
	l.writes = slices.DeleteFunc(l.writes, func(w lockWrite) bool { return !l.judged[w.process] })
}

// faults returns the writes that did not take effect while the Lease named their process. Versions
// decide. If the answer has none, or an old one because the write changed nothing, times decide, in
// the writer's favour.
func (l *lockLog) faults() []lockFault {
	var faults []lockFault
	for _, w := range l.writes {
		if !slices.ContainsFunc(l.terms, func(t lockTerm) bool { return t.process == w.process && l.covers(t, w) }) {
			faults = append(faults, lockFault{write: w, late: l.late(w), holder: l.at(w).process})
		}
	}
	return faults
}

// covers reports whether the write may have taken effect within the term.
func (l *lockLog) covers(t lockTerm, w lockWrite) bool {
	if l.isNew(w) {
		return t.first.version < w.version && (!t.ended() || w.version < t.end.version)
	}
	return !w.StageTimestamp.Time.Before(t.first.received) && (!t.ended() || !w.RequestReceivedTimestamp.After(t.end.answered))
}

// isNew reports whether the answer's version is the write's own. A write that changes nothing is
// answered with the last change's version.
func (l *lockLog) isNew(w lockWrite) bool {
	if w.version == 0 {
		return false
	}
	i, _ := slices.BinarySearchFunc(l.versions, w.RequestReceivedTimestamp.Time, func(v answeredVersion, t time.Time) int { return v.answered.Compare(t) })
	return i == 0 || l.versions[i-1].highest < w.version
}

// never is the lateness of a write whose process had no term.
const never = time.Duration(math.MaxInt64)

// succeeded reports whether the write arrived after the first write of a process that held the
// Lease after the write's own.
func (l *lockLog) succeeded(w lockWrite) bool {
	ended := w.RequestReceivedTimestamp.Add(-l.late(w))
	return slices.ContainsFunc(l.terms, func(t lockTerm) bool {
		first := l.firstWrite(t)
		return t.process != w.process && !t.first.answered.Before(ended) && !first.IsZero() && first.Before(w.RequestReceivedTimestamp.Time)
	})
}

// late returns how long the write arrived after the end of its process's last term before it;
// negative if it was in transit by then.
func (l *lockLog) late(w lockWrite) time.Duration {
	late := never
	for _, t := range l.terms {
		if t.process == w.process && t.ended() && !t.first.received.After(w.StageTimestamp.Time) {
			late = w.RequestReceivedTimestamp.Sub(t.end.answered)
		}
	}
	return late
}

// at returns the state of the Lease when the write took effect.
func (l *lockLog) at(w lockWrite) lockState {
	var state lockState
	isNew := l.isNew(w)
	for _, s := range l.states {
		if isNew && s.version > w.version || !isNew && s.answered.After(w.RequestReceivedTimestamp.Time) {
			break
		}
		state = s
	}
	return state
}

// move is a move of the Lease from one process to another, or to another term of the same process.
type move struct {
	from, to string
	released bool
	// early reports whether the Lease was neither released nor unchanged for its duration.
	early bool
	// lease is the time from the release, or from the last renewal before an expiry, to the
	// acquisition, between answers.
	lease time.Duration
	// writes is the time from the last write of the old holder to the first of the new one; zero if
	// either made none. after is the same from where lease begins.
	writes, after time.Duration
}

func (m move) String() string {
	how := "released"
	if !m.released {
		how = "expired"
	}
	return fmt.Sprintf("%-10s -> %-10s %-8s  Lease free %8v, first write %8v after that, writes apart %8v",
		m.from, m.to, how, m.lease.Round(time.Millisecond), m.after.Round(time.Millisecond), m.writes.Round(time.Millisecond))
}

// moves returns the moves between terms in order.
func (l *lockLog) moves() []move {
	var moves []move
	for i := 1; i < len(l.terms); i++ {
		from, to := l.terms[i-1], l.terms[i]
		free := from.end
		if !from.released() {
			free = from.last
		}
		m := move{from: from.process, to: to.process, released: from.released(), lease: to.first.answered.Sub(free.answered)}
		m.early = !m.released && to.first.answered.Sub(free.received) < free.duration
		last, first := l.lastWrite(from), l.firstWrite(to)
		if !first.IsZero() {
			m.after = first.Sub(free.answered)
		}
		if !first.IsZero() && !last.IsZero() {
			m.writes = first.Sub(last)
		}
		moves = append(moves, m)
	}
	return moves
}

// stopping is the effect of a command that makes the fleet give up the leader lock: how long until
// it was freed, and the move.
type stopping struct {
	freed time.Duration
	move
}

func (s stopping) String() string {
	return fmt.Sprintf("released after %v, then %v", s.freed.Round(time.Millisecond), s.move)
}

// stopped returns how the fleet gave up the leader lock after a command at the given time, and what
// the next holder did. It returns an error if the fleet did not release the lock, or the next
// holder has not written.
func (l *lockLog) stopped(given time.Time) (stopping, error) {
	i := slices.IndexFunc(l.terms, func(t lockTerm) bool { return t.ended() && t.end.answered.After(given) })
	if i < 0 || i+1 == len(l.terms) || l.terms[i].process != harness.Fleet || l.terms[i].first.received.After(given) {
		return stopping{}, fmt.Errorf("the fleet held the leader lock at %v and did not release it", given)
	}
	s := stopping{l.terms[i].end.answered.Sub(given), l.moves()[i]}
	if !s.released || s.after == 0 {
		return s, fmt.Errorf("the leader lock was not released, or its next holder wrote nothing: %v", s)
	}
	return s, nil
}

// lastWrite returns when the last write of a term's process that arrived before the term's end was
// answered.
func (l *lockLog) lastWrite(t lockTerm) time.Time {
	var last time.Time
	for _, w := range l.writes {
		if w.process == t.process && !w.RequestReceivedTimestamp.Time.After(t.end.answered) && w.StageTimestamp.After(last) {
			last = w.StageTimestamp.Time
		}
	}
	return last
}

// firstWrite returns when the first write of a term's process that arrived after the term's
// beginning was answered.
func (l *lockLog) firstWrite(t lockTerm) time.Time {
	var first time.Time
	for _, w := range l.writes {
		if w.process != t.process || w.RequestReceivedTimestamp.Time.Before(t.first.received) || t.ended() && w.RequestReceivedTimestamp.After(t.end.answered) {
			continue
		}
		if first.IsZero() || w.StageTimestamp.Time.Before(first) {
			first = w.StageTimestamp.Time
		}
	}
	return first
}

// lockLogOf reads the log of a control plane.
func lockLogOf(t *testing.T, plane *controlplane.ControlPlane, lease string, counts func(*harness.Event) bool) *lockLog {
	t.Helper()
	log, err := os.ReadFile(plane.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	l, err := readLeaderLockLog(bytes.NewReader(log), lease, counts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
