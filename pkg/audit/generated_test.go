package audit_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

// history generates what an innocent fleet of three does with one ReplicaSet in each of two shards.
// It has its own clock and versions, and records what its mutations need.
type history struct {
	*rand.Rand
	lines   []line
	second  float64
	version int
	shards  []*hold
	// writes are the indexes of lines with a term's writes within the shard's range.
	writes []int
	// acquired are the indexes of lines in which a term began after another one.
	acquired []int
	serial   int
}

// hold is a shard, its holder, and what its controllers have created.
type hold struct {
	id, namespace, holder string
	term                  int
	renewed               float64 // Second of the last renewal.
	ran                   bool    // It expired without a release.
	before                string  // The holder of the previous term.
	set                   jsonObject
	desired, generation   int
	seen                  int
	pods                  []jsonObject
	ended                 []line // A write of each term that is over.
	last                  line   // A write of this term.
}

var members = []string{a, b, "flotilla-2_ccc"}

// generate returns a history of this many steps. At the end both shards have a holder and the pods
// they want, and nothing happens for a minute.
func generate(seed uint64, steps int) *history {
	h := &history{Rand: rand.New(rand.NewPCG(seed, 1)), version: 10}
	h.add(does("create", user, "", "nodes", object("Node", "", machine), h.next(), h.second))
	for _, s := range []*hold{{id: lower, namespace: low}, {id: upper, namespace: high}} {
		h.shards = append(h.shards, s)
		s.desired, s.generation = 1+h.IntN(4), 1
		s.set = object("ReplicaSet", s.namespace, "web-"+s.namespace)
		h.add(does("create", user, "apps", "replicasets", s.state(), h.next(), h.second))
	}
	for range steps {
		h.step(h.shards[h.IntN(len(h.shards))])
	}
	for _, s := range h.shards {
		h.acquire(s)
		h.reconcile(s)
	}
	h.second += 60
	for _, s := range h.shards {
		h.renew(s)
		h.write(s)
	}
	// check shuffles the lines, because a log may be out of order.
	return h
}

func (h *history) add(l line) int {
	h.lines = append(h.lines, l)
	return len(h.lines) - 1
}

// next advances the clock and the version, the clock by more than a request takes.
func (h *history) next() int {
	h.second += 0.01 + h.Float64()
	h.version += 1 + h.IntN(5)
	return h.version
}

func (s *hold) state() jsonObject {
	return s.set.set("spec", "replicas", s.desired).is(s.generation, s.seen)
}

func (s *hold) agent() string { return agent(s.holder, s.id, s.term) }

func (h *history) step(s *hold) {
	switch h.IntN(9) {
	case 0:
		h.acquire(s)
		h.release(s)
	case 1:
		h.acquire(s)
		h.crash(s)
	case 2:
		s.desired, s.generation = h.IntN(6), s.generation+1
		h.add(does("update", user, "apps", "replicasets", s.state(), h.next(), h.second))
	case 3:
		h.lose(s)
	case 4, 5:
		h.acquire(s)
		h.reconcile(s)
	default:
		h.acquire(s)
		h.write(s)
	}
}

func (h *history) acquire(s *hold) {
	if s.holder != "" {
		h.renew(s)
		return
	}
	version := h.next()
	if s.ran {
		h.second = max(h.second, s.renewed+leaseTime+0.1)
	}
	ran := s.ran
	s.holder, s.term, s.renewed, s.ran = members[h.IntN(len(members))], s.term+1, h.second, false
	place := h.add(lease(s.id, s.holder, s.term, version, h.second))
	// A holder that takes its own expired Lease in the same term looks like one that renewed late.
	if s.term > 1 && (!ran || s.holder != s.before) {
		h.acquired = append(h.acquired, place)
	}
}

func (h *history) renew(s *hold) {
	version := h.next()
	s.renewed = h.second
	h.add(lease(s.id, s.holder, s.term, version, h.second))
}

func (h *history) release(s *hold) {
	h.add(lease(s.id, "", s.term, h.next(), h.second))
	h.end(s)
	// A late write is refused.
	if h.IntN(3) == 0 && s.last != nil {
		h.next()
		h.add(write(members[0], s.id, s.term, s.namespace, 0, h.second).code(403))
	}
}

// crash sometimes leaves a request on the wire, which takes effect after the next holder has begun.
func (h *history) crash(s *hold) {
	h.end(s)
	s.ran = true
	// A rival leaves its request on the Lease, which must not extend the Lease's life.
	if h.IntN(2) == 0 {
		h.add(asked(lease(s.id, s.before, s.term, 0, s.renewed), h.next(), h.second))
	}
	if last := s.last; last != nil && last["term"] == s.term && h.IntN(2) == 0 {
		h.acquire(s)
		h.next()
		h.add(write(a, s.id, 1, s.namespace, h.version, h.second).with("userAgent", last["userAgent"]).arrived(s.renewed - 0.001))
	}
}

func (h *history) end(s *hold) {
	if s.last != nil && s.last["term"] == s.term {
		s.ended = append(s.ended, s.last)
	}
	s.before, s.holder = s.holder, ""
}

func (h *history) write(s *hold) {
	l := write(s.holder, s.id, s.term, s.namespace, h.next(), h.second)
	switch h.IntN(6) {
	case 0:
		l = l.with("responseObject", nil)
	case 1:
		h.add(l.code(409))
		return
	}
	s.last = l.with("term", s.term)
	h.writes = append(h.writes, h.add(l))
}

// lose makes a user delete a pod.
func (h *history) lose(s *hold) {
	if len(s.pods) == 0 {
		return
	}
	i := h.IntN(len(s.pods))
	version := h.next()
	if h.IntN(3) == 0 {
		h.add(does("create", user, "", "pods/eviction", s.pods[i], 0, h.second))
	} else {
		h.add(does("delete", user, "", "pods", s.pods[i], version, h.second))
	}
	s.pods = slices.Delete(s.pods, i, i+1)
}

// reconcile creates or deletes pods until there are as many as wanted, and updates the status.
func (h *history) reconcile(s *hold) {
	for len(s.pods) < s.desired {
		p := h.pod(s)
		s.pods = append(s.pods, p)
		h.add(does("create", s.agent(), "", "pods", p, h.next(), h.second))
	}
	for len(s.pods) > s.desired {
		i := h.IntN(len(s.pods))
		h.add(does("delete", s.agent(), "", "pods", s.pods[i], h.next(), h.second))
		s.pods = slices.Delete(s.pods, i, i+1)
	}
	s.seen = s.generation
	h.add(does("update", s.agent(), "apps", "replicasets/status", s.state(), h.next(), h.second))
}

func (h *history) pod(s *hold) jsonObject {
	h.serial++
	return object("Pod", s.namespace, fmt.Sprintf("%s-%d", s.namespace, h.serial)).of("apps/v1", s.state()).set("spec", "nodeName", machine)
}

// Each of mutations plants one fault, and returns false if the history has no room for it.
var mutations = map[audit.Kind][]func(h *history) bool{
	audit.NotHolder: {
		func(h *history) bool { // Another member writes.
			i := h.writes[h.IntN(len(h.writes))]
			by, _, _ := audit.ParseAgent(h.lines[i]["userAgent"].(string))
			h.lines[i] = h.lines[i].with("userAgent", agent("flotilla-9_zzz", by.Shard.String(), int(by.Term)))
			return true
		},
		func(h *history) bool { // A term that has not begun.
			i := h.writes[h.IntN(len(h.writes))]
			by, _, _ := audit.ParseAgent(h.lines[i]["userAgent"].(string))
			h.lines[i] = h.lines[i].with("userAgent", agent(by.Member, by.Shard.String(), int(by.Term)+100))
			return true
		},
		func(h *history) bool { // A write of an earlier term, after its end.
			s := h.shards[h.IntN(2)]
			if len(s.ended) == 0 {
				return false
			}
			agent := s.ended[h.IntN(len(s.ended))]["userAgent"]
			h.add(write(a, s.id, 1, s.namespace, h.next(), h.second).with("userAgent", agent))
			return true
		},
	},
	audit.WrongRange: {func(h *history) bool {
		s, other := h.shards[0], h.shards[1]
		h.add(write(s.holder, s.id, s.term, other.namespace, h.next(), h.second))
		return true
	}},
	audit.Unfenced: {func(h *history) bool {
		i := h.writes[h.IntN(len(h.writes))]
		h.lines[i] = h.lines[i].with("userAgent", client)
		return true
	}},
	audit.TakenEarly: {func(h *history) bool {
		s := h.shards[h.IntN(2)]
		h.renew(s)
		h.second++
		h.add(lease(s.id, "flotilla-9_zzz", s.term+1, h.next(), h.second))
		return true
	}},
	audit.TermReused: {func(h *history) bool {
		if len(h.acquired) == 0 {
			return false
		}
		i := h.acquired[h.IntN(len(h.acquired))]
		answer := maps.Clone(h.lines[i]["responseObject"].(map[string]any))
		spec := maps.Clone(answer["spec"].(map[string]any))
		spec["leaseTransitions"] = spec["leaseTransitions"].(int) - 1
		answer["spec"] = spec
		h.lines[i] = h.lines[i].with("responseObject", answer)
		return true
	}},
	audit.Overlapping: {func(h *history) bool {
		s := h.shards[h.IntN(2)]
		holder, term := s.holder, s.term
		h.release(s)
		h.acquire(s)
		h.release(s)
		h.add(lease(s.id, holder, term, h.next(), h.second))
		return true
	}},
	audit.LeaseDeleted: {func(h *history) bool {
		h.add(lease(h.shards[h.IntN(2)].id, "", 0, h.next(), h.second).with("verb", "delete"))
		return true
	}},
	audit.DuplicatePod: {func(h *history) bool {
		s := h.shards[h.IntN(2)]
		h.add(does("create", s.agent(), "", "pods", h.pod(s), h.next(), h.second))
		if s.generation > 1 { // What was wanted before may excuse the first.
			h.add(does("create", s.agent(), "", "pods", h.pod(s), h.next(), h.second))
		}
		return s.generation == 1 || !h.excused(s)
	}},
	audit.WantedPodDeleted: {func(h *history) bool {
		s := h.shards[h.IntN(2)]
		if len(s.pods) == 0 {
			return false
		}
		h.add(does("delete", s.agent(), "", "pods", s.pods[0], h.next(), h.second))
		return true
	}},
	audit.OwnedDeleted: {func(h *history) bool {
		s := h.shards[h.IntN(2)]
		if len(s.pods) == 0 {
			return false
		}
		h.add(does("delete", s.agent(), "", "pods", s.pods[0], h.next(), h.second).with("user", map[string]any{"username": collector}))
		return true
	}},
}

// excused reports whether no pods were ever wanted. Then the ReplicaSet created none, and no create
// bounds the excuse.
func (h *history) excused(s *hold) bool { return s.desired == 0 }

func (h *history) check(t *testing.T) audit.Report {
	t.Helper()
	h.Shuffle(len(h.lines), func(i, j int) { h.lines[i], h.lines[j] = h.lines[j], h.lines[i] })
	return check(t, h.lines...)
}

// TestInnocentHistories: the judge convicts nobody, although it has something to judge.
func TestInnocentHistories(t *testing.T) {
	var all audit.Judged
	flights := 0
	seeds, share := uint64(150), 1
	if testing.Short() {
		seeds, share = 60, 5
	}
	for seed := range seeds {
		report := generate(seed, 40+int(seed%160)).check(t)
		if err := report.Err(); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		all.Creates += report.Objects.Creates
		all.Deletes += report.Objects.Deletes
		flights += len(report.InFlight)
	}
	if all.Creates < 1000/share || all.Deletes < 500/share || flights < 50/share {
		t.Errorf("%+v and %d in flight: too few to prove anything", all, flights)
	}
}

// TestMutatedHistories plants one fault into each history, and checks that the judge finds it.
func TestMutatedHistories(t *testing.T) {
	for kind, plants := range mutations {
		for number, plant := range plants {
			planted := 0
			seeds, least := uint64(30), 10
			if testing.Short() {
				seeds, least = 10, 3
			}
			for seed := range seeds {
				h := generate(seed, 60)
				if !plant(h) {
					continue
				}
				planted++
				report := h.check(t)
				if !slices.ContainsFunc(report.Violations, func(v audit.Violation) bool { return v.Kind == kind }) {
					t.Errorf("seed %d: fault %d of kind %q was not found; violations %v, skipped %v", seed, number, kind, report.Violations, report.Objects.Skipped)
				}
			}
			if planted < least {
				t.Errorf("fault %d of kind %q: planted only %d times", number, kind, planted)
			}
		}
	}
}
