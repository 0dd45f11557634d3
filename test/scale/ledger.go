package main

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// work is one run of a shard's work, in one process.
type work struct {
	crew   string
	number int64
}

// entry is a beginning or an end of work.
type entry struct {
	at     int64
	work   work
	member string
	begins bool
	atoms  []int
}

// ledger records what runs. Its parts, the atoms, are the groups and the pieces into which all
// plans of the run together cut the keyspace. Each must have exactly one running owner. Its methods
// are safe for concurrent use.
type ledger struct {
	bounds []uint64 // where the atoms of the keyspace begin
	groups []string

	mu      sync.Mutex
	entries []entry
	running map[work]entry
	owners  []int
	// astray is the number of atoms without exactly one owner, whole the time at which it last
	// became 0.
	astray int
	whole  int64
}

func newLedger(plans ...shard.Plan) *ledger {
	l := &ledger{running: map[work]entry{}}
	for _, plan := range plans {
		for _, s := range plan.Shards() {
			if s.Namespaced() {
				l.bounds = append(l.bounds, s.Range.Start)
			} else {
				l.groups = append(l.groups, s.Group)
			}
		}
	}
	slices.Sort(l.bounds)
	l.bounds = slices.Compact(l.bounds)
	slices.Sort(l.groups)
	l.groups = slices.Compact(l.groups)
	l.owners = make([]int, len(l.bounds)+len(l.groups))
	l.astray = len(l.owners)
	return l
}

// atomsOf returns the atoms of a range or group.
func (l *ledger) atomsOf(text, group string) ([]int, error) {
	if group != "" {
		i, found := slices.BinarySearch(l.groups, group)
		if !found {
			return nil, fmt.Errorf("group %q is in no plan", group)
		}
		return []int{len(l.bounds) + i}, nil
	}
	r, err := shard.ParseRange(text)
	if err != nil {
		return nil, err
	}
	var atoms []int
	for i, start := range l.bounds {
		if r.Contains(start) {
			atoms = append(atoms, i)
		}
	}
	return atoms, nil
}

// take records a message about work.
func (l *ledger) take(crew string, m message) error {
	e := entry{at: m.At, work: work{crew, m.Work}, member: m.Member, begins: m.Kind == begun}
	if e.begins {
		var err error
		if e.atoms, err = l.atomsOf(m.Range, m.Group); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(e)
	return nil
}

// died records that a process has ended, and all its work with it.
func (l *ledger) died(crew string, at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for w, e := range l.running {
		if w.crew == crew {
			l.add(entry{at: at, work: w, member: e.member})
		}
	}
}

func (l *ledger) add(e entry) {
	if e.begins {
		l.running[e.work] = e
	} else {
		e.atoms = l.running[e.work].atoms
		delete(l.running, e.work)
	}
	l.entries = append(l.entries, e)
	before := l.astray
	for _, i := range e.atoms {
		l.astray -= toInt(l.owners[i] != 1)
		if e.begins {
			l.owners[i]++
		} else {
			l.owners[i]--
		}
		l.astray += toInt(l.owners[i] != 1)
	}
	if before > 0 && l.astray == 0 {
		l.whole = e.at
	}
}

// isWhole returns the time from which each atom has had exactly one owner, in the order in which
// messages arrived, and an error if some atom has not.
func (l *ledger) isWhole() (since int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.astray > 0 {
		return 0, fmt.Errorf("%d of %d parts of the keyspace and groups do not have exactly one owner", l.astray, len(l.owners))
	}
	return l.whole, nil
}

// sorted returns the entries by time; an end comes before a beginning of the same instant.
func (l *ledger) sorted() []entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := slices.Clone(l.entries)
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(toInt(a.begins), toInt(b.begins)))
	})
	return entries
}

// overlaps returns a sentence for each beginning of work during other work on the same part.
func (l *ledger) overlaps() []string {
	var found []string
	owner := make([]entry, len(l.owners))
	for _, e := range l.sorted() {
		told := false
		for _, i := range e.atoms {
			other := owner[i]
			if !e.begins {
				if other.work == e.work {
					owner[i] = entry{}
				}
				continue
			}
			if other.begins && !told {
				told = true
				found = append(found, fmt.Sprintf("%s began work %d of %s while work %d of %s, by %s, was under way on part %d since %v",
					e.member, e.work.number, e.work.crew, other.work.number, other.work.crew, other.member, i, between(other.at, e.at)))
			}
			owner[i] = e
		}
	}
	return found
}

// gaps returns, sorted, a gap for each work that began in a span: how long the part of it that had
// waited longest was unowned. It leaves out parts that nobody had owned before.
func (l *ledger) gaps(from, to int64) []time.Duration {
	var gaps []time.Duration
	left := make([]int64, len(l.owners))
	for _, e := range l.sorted() {
		var longest time.Duration
		known := false
		for _, i := range e.atoms {
			if !e.begins {
				left[i] = e.at
			} else if left[i] != 0 {
				longest, known = max(longest, between(left[i], e.at)), true
			}
		}
		if known && e.at >= from && e.at < to {
			gaps = append(gaps, longest)
		}
	}
	slices.Sort(gaps)
	return gaps
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
