package audit_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// heartbeatFleet generates what an innocent fleet of three with one heartbeat per member does. It
// has a clock and a version, and sends the heartbeats of live members as time passes.
type heartbeatFleet struct {
	*rand.Rand
	lines   []line
	second  float64
	version int
	members []*beatingMember
	shards  []*recordedShard
	flights int // Writes that were left on the wire.
}

// beatingMember is a member's Lease, and whether its process runs.
type beatingMember struct {
	name, incarnation string
	starts            int
	lives             bool
	renewed           float64
	ended             []string
}

// recordedShard is a shard's Lease.
type recordedShard struct {
	id, namespace, holder string
	term                  int
	released              bool
	written               line
	since                 float64
}

func generateHeartbeats(seed uint64, steps int) *heartbeatFleet {
	f := &heartbeatFleet{Rand: rand.New(rand.NewPCG(seed, 2)), version: 10}
	for i := range 3 {
		f.members = append(f.members, &beatingMember{name: fmt.Sprintf("flotilla-%d", i)})
		f.start(f.members[i])
	}
	f.shards = []*recordedShard{
		{id: lower, namespace: low, released: true}, {id: upper, namespace: high, released: true},
	}
	for range steps {
		f.step()
	}
	f.settle()
	return f
}

// settle makes all members live, and each shard held by one of them.
func (f *heartbeatFleet) settle() {
	for _, m := range f.members {
		f.start(m)
	}
	for _, s := range f.shards {
		f.take(s)
		f.write(s)
	}
	f.pass(5)
}

// pass lets time pass, with the heartbeats that are due.
func (f *heartbeatFleet) pass(seconds float64) {
	until := f.second + seconds
	for {
		var due *beatingMember
		for _, m := range f.members {
			if m.lives && m.renewed+2 <= until && (due == nil || m.renewed < due.renewed) {
				due = m
			}
		}
		if due == nil {
			f.second = until
			return
		}
		f.second = max(f.second, due.renewed+2)
		f.beat(due)
	}
}

func (f *heartbeatFleet) next() int {
	f.pass(0.01 + f.Float64()/4)
	f.version += 1 + f.IntN(3)
	return f.version
}

func (f *heartbeatFleet) beat(m *beatingMember) {
	f.version++
	m.renewed = f.second
	// Incarnations that no shard's Lease names leave the list.
	m.ended = slices.DeleteFunc(m.ended, func(incarnation string) bool {
		return !slices.ContainsFunc(f.shards, func(s *recordedShard) bool { return s.holder == incarnation })
	})
	f.add(beats(m.incarnation, f.version, f.second, m.ended...))
}

func (f *heartbeatFleet) add(l line) { f.lines = append(f.lines, l) }

// start makes a member's next incarnation acquire the member's Lease. Unless the previous one has
// ended, the Lease must have expired.
func (f *heartbeatFleet) start(m *beatingMember) {
	if m.lives {
		return
	}
	before := m.incarnation
	if before != "" && !slices.Contains(m.ended, before) {
		f.pass(max(0, m.renewed+leaseTime+0.1-f.second))
		m.ended = append(m.ended, before)
	}
	version := f.next()
	m.starts++
	m.incarnation, m.lives, m.renewed = fmt.Sprintf("%s_%d", m.name, m.starts), true, f.second
	l := beats(m.incarnation, version, f.second, slices.Sorted(slices.Values(m.ended))...)
	if before == "" {
		l = created(l)
	}
	f.add(l)
}

func (f *heartbeatFleet) living() *beatingMember {
	var all []*beatingMember
	for _, m := range f.members {
		if m.lives {
			all = append(all, m)
		}
	}
	return all[f.IntN(len(all))]
}

func (f *heartbeatFleet) of(incarnation string) *beatingMember {
	for _, m := range f.members {
		if m.name == leaserecord.MemberOf(incarnation) {
			return m
		}
	}
	return nil
}

// crash ends a process, unless it is the last one. Sometimes it leaves a write on the wire.
func (f *heartbeatFleet) crash(m *beatingMember) {
	if n := len(slices.DeleteFunc(slices.Clone(f.members), func(m *beatingMember) bool { return !m.lives })); n < 2 || !m.lives {
		return
	}
	m.lives = false
	arrived := f.second
	for _, s := range f.shards {
		if s.holder == m.incarnation && f.IntN(2) == 0 {
			by, term := s.holder, s.term
			f.take(s)
			f.add(write(by, s.id, term, s.namespace, f.next(), f.second).arrived(arrived))
			f.flights++
		}
	}
}

// leave ends a process in good order.
func (f *heartbeatFleet) leave(m *beatingMember) {
	for _, s := range f.shards {
		if s.holder == m.incarnation && f.IntN(4) > 0 {
			f.release(s)
		}
	}
	f.end(m, m.name)
	m.lives = false
}

// end makes sender list the incarnation on a member's Lease as ended.
func (f *heartbeatFleet) end(m *beatingMember, sender string) {
	version := f.next()
	m.ended = append(m.ended, m.incarnation)
	list := slices.Sorted(slices.Values(m.ended))
	f.add(ofMember(sender, m.name, "", m.renewed, version, f.second, list...))
}

// strike makes a live member list a dead incarnation as ended, once it may.
func (f *heartbeatFleet) strike(m *beatingMember) {
	if !m.lives && !slices.Contains(m.ended, m.incarnation) {
		f.pass(max(0, m.renewed+leaseTime+0.1-f.second))
		f.end(m, f.living().name)
	}
}

// take makes a live member take a shard, unless a live member holds it.
func (f *heartbeatFleet) take(s *recordedShard) {
	m := f.of(s.holder)
	switch {
	case m != nil && m.lives && m.incarnation == s.holder:
		return
	case m != nil && m.incarnation == s.holder:
		f.strike(m)
	case s.holder == "" && !s.released:
		f.pass(max(0, s.since+leaseTime+0.1-f.second))
	}
	f.hold(s, f.living().incarnation)
}

func (f *heartbeatFleet) hold(s *recordedShard, holder string) {
	version := f.next()
	s.holder, s.term, s.released = holder, s.term+1, false
	s.written = lease(s.id, holder, s.term, version, f.second).sentBy(leaserecord.MemberOf(holder))
	f.add(s.written)
}

func (f *heartbeatFleet) release(s *recordedShard) {
	version := f.next()
	s.written = release(s.id, s.term, version, f.second).sentBy(leaserecord.MemberOf(s.holder))
	s.holder, s.released = "", true
	f.add(s.written)
}

func (f *heartbeatFleet) write(s *recordedShard) {
	f.add(write(s.holder, s.id, s.term, s.namespace, f.next(), f.second))
}

// step takes one action, on one shard or member.
func (f *heartbeatFleet) step() {
	s, m := f.shards[f.IntN(2)], f.members[f.IntN(3)]
	switch f.IntN(10) {
	case 0:
		f.crash(m)
	case 1:
		if others := f.living(); others != m && m.lives {
			f.leave(m)
		}
	case 2:
		f.start(m)
	case 3: // An operator's annotation on a member's Lease keeps its spec.
		if m.lives {
			f.add(ofMember(user, m.name, m.incarnation, m.renewed, f.next(), f.second, m.ended...))
			f.lines[len(f.lines)-1] = f.lines[len(f.lines)-1].notes(map[string]string{"flotilla.dev/drain": "true"})
		}
	case 4:
		f.take(s)
		f.release(s)
	case 5:
		f.take(s)
		version := f.next()
		s.holder, s.released, s.since = "", false, f.second
		f.add(lease(s.id, "", s.term, version, f.second).sentBy(user))
	case 6:
		f.pass(3 * f.Float64())
	default:
		f.take(s)
		f.write(s)
	}
}

func (f *heartbeatFleet) check(t *testing.T) audit.Report {
	t.Helper()
	f.Shuffle(len(f.lines), func(i, j int) { f.lines[i], f.lines[j] = f.lines[j], f.lines[i] })
	return check(t, f.lines...)
}

// TestInnocentHeartbeats checks that the judge convicts nobody and doubts nothing, although it has
// something to judge.
func TestInnocentHeartbeats(t *testing.T) {
	ended, taken, flights, made := 0, 0, 0, 0
	seeds, share := uint64(150), 1
	if testing.Short() {
		seeds, share = 50, 5
	}
	for seed := range seeds {
		f := generateHeartbeats(seed, 40+int(seed%80))
		report := f.check(t)
		if err := report.Err(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if len(report.Undecided) > 0 || report.Late > 0 {
			t.Errorf("seed %d: undecided %v, %d late", seed, report.Undecided, report.Late)
		}
		ended, taken, flights, made = ended+report.Ended, taken+report.Taken, flights+len(report.InFlight), made+f.flights
	}
	if ended < 500/share || taken < 200/share || flights < 50/share || flights != made {
		t.Errorf("%d ended, %d taken, %d in flight of %d: too few to prove anything", ended, taken, flights, made)
	}
}

// TestGuiltyHeartbeats plants one fault at the end of each history, and checks that the judge finds
// it.
func TestGuiltyHeartbeats(t *testing.T) {
	for kind, plant := range map[audit.Kind]func(f *heartbeatFleet, s *recordedShard, m, other *beatingMember){
		audit.HolderNotEnded: func(f *heartbeatFleet, s *recordedShard, _, other *beatingMember) {
			f.hold(s, other.incarnation)
		},
		audit.EndedEarly: func(f *heartbeatFleet, _ *recordedShard, m, other *beatingMember) { f.end(m, other.name) },
		audit.WriterEnded: func(f *heartbeatFleet, s *recordedShard, m, _ *beatingMember) {
			m.lives = false
			f.strike(m)
			f.write(s)
		},
		audit.NotHolder: func(f *heartbeatFleet, s *recordedShard, m, other *beatingMember) {
			m.lives = false
			f.strike(m)
			f.hold(s, other.incarnation)
			f.add(write(m.incarnation, s.id, s.term-1, s.namespace, f.next(), f.second))
		},
		audit.BeatAfterEnd: func(f *heartbeatFleet, _ *recordedShard, m, _ *beatingMember) {
			m.lives = false
			f.strike(m)
			f.pass(1)
			f.beat(m)
		},
		audit.TakenEarly: func(f *heartbeatFleet, s *recordedShard, _, other *beatingMember) {
			f.add(lease(s.id, "", s.term, f.next(), f.second).sentBy(user))
			f.hold(s, other.incarnation)
		},
	} {
		for seed := range uint64(30) {
			f := generateHeartbeats(seed, 40)
			s := f.shards[f.IntN(2)]
			m := f.of(s.holder)
			other := f.members[(slices.Index(f.members, m)+1)%3]
			plant(f, s, m, other)
			if m.lives {
				f.pass(3)
			}
			report := f.check(t)
			if !slices.ContainsFunc(report.Violations, func(v audit.Violation) bool { return v.Kind == kind }) {
				t.Errorf("seed %d: %q was not found; violations %v", seed, kind, report.Violations)
			}
		}
	}
}
