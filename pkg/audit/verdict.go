package audit

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Verdict is a report that can be written as JSON, or as text by WriteText.
type Verdict struct {
	// Clean is set if there is no violation.
	Clean bool `json:"clean"`
	// Judged is how many writes of shards were compared with a Lease. If it is 0, Clean means
	// nothing.
	Judged     int            `json:"judgedWrites"`
	Counts     Counts         `json:"counts"`
	Cut        bool           `json:"cut"`
	Kinds      map[Kind]int   `json:"violationsByKind"`
	Violations []Violation    `json:"violations"`
	Undecided  []Violation    `json:"undecided"`
	Overlaps   []OverlapEntry `json:"overlaps"`
	InFlight   []FlightEntry  `json:"inFlight"`
	DeniedLate map[string]int `json:"deniedLate"`
	Objects    Judged         `json:"objects"`
	Shards     []ShardEntry   `json:"shards"`
	// Plans is how many plans were in force, one after the other. Successions are what passed from
	// shard to shard by their changes.
	Plans       int               `json:"plans"`
	Successions []SuccessionEntry `json:"successions"`
}

// SuccessionEntry is a Succession. Times are in seconds.
type SuccessionEntry struct {
	Predecessor string   `json:"predecessor"`
	Successor   string   `json:"successor"`
	Before      string   `json:"before"`
	After       string   `json:"after"`
	Range       string   `json:"range"`
	Controllers []string `json:"controllers"`
	Planned     bool     `json:"planned"`
	Ended       string   `json:"ended"`
	Gap         float64  `json:"gapSeconds"`
	// Silence is missing if one of the two wrote nothing.
	Silence *float64 `json:"silenceSeconds,omitempty"`
}

// ShardEntry is a verdict's entry for one shard. Times are in seconds.
type ShardEntry struct {
	Shard          string         `json:"shard"`
	Terms          int            `json:"terms"`
	Moves          int            `json:"moves"`
	Writes         map[string]int `json:"writes"`
	Gaps           []GapEntry     `json:"gaps"`
	P50            float64        `json:"plannedP50Seconds"`
	P99            float64        `json:"plannedP99Seconds"`
	Worst          float64        `json:"plannedWorstSeconds"`
	WorstUnplanned float64        `json:"unplannedWorstSeconds"`
	// Vacant is the time since which the shard has had no holder; missing if it has one.
	Vacant string `json:"vacantSince,omitempty"`
}

// GapEntry is a Gap.
type GapEntry struct {
	Before  string  `json:"before"`
	After   string  `json:"after"`
	From    string  `json:"from"`
	Seconds float64 `json:"seconds"`
	Planned bool    `json:"planned"`
}

// OverlapEntry is an Overlap.
type OverlapEntry struct {
	Shard   string  `json:"shard"`
	Other   string  `json:"other"`
	First   string  `json:"first"`
	Second  string  `json:"second"`
	Version uint64  `json:"version"`
	Seconds float64 `json:"seconds"`
}

// FlightEntry is a Flight.
type FlightEntry struct {
	By       string  `json:"by"`
	File     string  `json:"file,omitempty"`
	Log      int     `json:"log"`
	Line     int     `json:"line"`
	Verb     string  `json:"verb"`
	URI      string  `json:"uri"`
	Version  uint64  `json:"version"`
	Ended    uint64  `json:"termEndedVersion"`
	After    float64 `json:"secondsAfterEnd"`
	Released bool    `json:"released"`
}

// Verdict returns the report as a Verdict.
func (r Report) Verdict() Verdict {
	v := Verdict{
		Clean: len(r.Violations) == 0, Counts: r.Counts, Cut: r.Cut,
		Kinds: map[Kind]int{}, DeniedLate: map[string]int{}, Objects: r.Objects,
		// Lists are written even when they are empty.
		Violations: append([]Violation{}, r.Violations...), Undecided: append([]Violation{}, r.Undecided...), Overlaps: []OverlapEntry{}, InFlight: []FlightEntry{},
		Plans: r.Plans, Successions: []SuccessionEntry{},
	}
	for _, s := range r.Successions() {
		v.Successions = append(v.Successions, successionEntry(s))
	}
	for _, byIncarnation := range r.Writes {
		for _, n := range byIncarnation {
			v.Judged += n
		}
	}
	for _, violation := range r.Violations {
		v.Kinds[violation.Kind]++
	}
	for code, n := range r.DeniedLate {
		v.DeniedLate[strconv.Itoa(int(code))] = n
	}
	for _, o := range r.Overlaps {
		v.Overlaps = append(v.Overlaps, OverlapEntry{
			Shard: o.Shard.String(), Other: o.Other.String(), First: o.First.claim(), Second: o.Second.claim(), Version: o.Version, Seconds: o.For.Seconds(),
		})
	}
	for _, f := range r.InFlight {
		v.InFlight = append(v.InFlight, FlightEntry{
			By: f.Identity.String(), File: f.File, Log: f.Log, Line: f.Line, Verb: f.Verb, URI: f.URI, Version: f.Version, Ended: f.Ended,
			After: f.After.Seconds(), Released: f.Released,
		})
	}
	unowned := r.Unowned()
	for _, id := range slices.SortedFunc(maps.Keys(r.Terms), shard.ID.Compare) {
		v.Shards = append(v.Shards, shardEntry(id, r, unowned[id]))
	}
	return v
}

func successionEntry(s Succession) SuccessionEntry {
	e := SuccessionEntry{
		Predecessor: s.Predecessor.String(), Successor: s.Successor.String(), Before: s.Before, After: s.After, Range: s.Extent.Range.String(),
		Controllers: s.Extent.Controllers, Planned: s.Planned, Ended: stamp(s.Ended), Gap: s.Gap().Seconds(),
	}
	if silence, written := s.Silence(); written {
		seconds := silence.Seconds()
		e.Silence = &seconds
	}
	return e
}

func shardEntry(id shard.ID, r Report, u Unowned) ShardEntry {
	s := ShardEntry{
		Shard: id.String(), Terms: len(r.Terms[id]), Moves: u.Moves, Writes: r.Writes[id], Gaps: []GapEntry{},
		P50: u.P50.Seconds(), P99: u.P99.Seconds(), Worst: u.Worst.Seconds(), WorstUnplanned: u.WorstUnplanned.Seconds(),
	}
	if !u.Vacant.IsZero() {
		s.Vacant = stamp(u.Vacant)
	}
	for _, g := range u.Gaps {
		s.Gaps = append(s.Gaps, GapEntry{
			Before: g.Before, After: g.After, From: stamp(g.From), Seconds: g.Duration().Seconds(), Planned: g.Planned,
		})
	}
	return s
}

// claim names a term for people.
func (t Term) claim() string { return t.Holder + ", term " + strconv.Itoa(int(t.Term)) }

// rounded returns seconds as a duration that is short enough to read.
func rounded(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Microsecond).String()
}
