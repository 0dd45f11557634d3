package page

import (
	"fmt"
	"math"
	"strings"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// The picture of a ring, in units of the view box: the band of the holders, and within it that of
// the next holders.
const (
	centre                 = 200.0
	outerRadius            = 158.0
	innerRadius            = 108.0
	nextOuter, nextInner   = 104.0, 92.0
	labelRadius, tagRadius = 173.0, 133.0

	// minLabel is how long an arc must be to have a label; narrow is the angle below which arcs are
	// not separated.
	minLabel = 17.0
	narrow   = 0.06
	// maxLabel is the longest name that fits beside the ring.
	maxLabel = 6
)

// picture is the keyspace as a circle: hash 0 is at the top, and hashes grow clockwise.
type picture struct {
	Ring Ring
	Arcs []arc
	// Summary is what the picture shows, in a sentence.
	Summary string
	Moving  int
}

// arc is a shard in the picture.
type arc struct {
	Shard Shard
	// Path is the part of the holders' band, Next that of the next holders' band.
	Path, Next string
	// TagX, TagY and LabelX, LabelY are where the texts go, Anchor how the label is aligned. Wide
	// reports whether there is room.
	TagX, TagY, LabelX, LabelY string
	Anchor                     string
	Wide, Labelled, Thin       bool
}

// newPicture returns the picture of a ring of namespaces. It leaves out shards whose range cannot
// be read.
func newPicture(ring Ring) picture {
	p := picture{Ring: ring}
	holders := map[string]int{}
	for _, s := range ring.Shards {
		r, err := shard.ParseRange(s.Range)
		if err != nil {
			continue
		}
		p.Arcs = append(p.Arcs, newArc(s, r))
		if s.MovingTo != "" {
			p.Moving++
		}
		if !s.Silent {
			holders[s.Holder]++
		}
	}
	var parts []string
	for _, name := range status.SortNaturally(keys(holders)) {
		if name != "" {
			parts = append(parts, fmt.Sprintf("%s holds %d", name, holders[name]))
		}
	}
	if n := countState(ring, status.StateUnowned); n > 0 {
		parts = append(parts, fmt.Sprintf("%d without a holder", n))
	}
	if p.Moving > 0 {
		parts = append(parts, fmt.Sprintf("%d in handoff", p.Moving))
	}
	p.Summary = fmt.Sprintf("Ring %s, %d shards: %s. The tables below say the same.", ring.Name, len(ring.Shards), strings.Join(parts, ", "))
	return p
}

func newArc(s Shard, r shard.Range) arc {
	from, to := angle(r.Start), angle(r.End)
	if r.End == 0 {
		to = 2 * math.Pi
	}
	middle, length := (from+to)/2, (to-from)*tagRadius
	a := arc{
		Shard: s, Path: sector(innerRadius, outerRadius, from, to), Next: sector(nextInner, nextOuter, from, to),
		Wide: length >= minLabel, Labelled: (to-from)*labelRadius >= minLabel && len(nameOf(s.Shard)) <= maxLabel, Thin: to-from < narrow,
	}
	a.TagX, a.TagY = point(tagRadius, middle)
	a.LabelX, a.LabelY = point(labelRadius, middle)
	switch side := math.Sin(middle); {
	case side > 0.3:
		a.Anchor = "start"
	case side < -0.3:
		a.Anchor = "end"
	default:
		a.Anchor = "middle"
	}
	return a
}

// angle returns where a hash lies, clockwise from the top.
func angle(hash uint64) float64 { return float64(hash) / (1 << 64) * 2 * math.Pi }

func point(radius, at float64) (x, y string) {
	return number(centre + radius*math.Sin(at)), number(centre - radius*math.Cos(at))
}

func number(f float64) string { return fmt.Sprintf("%.2f", f) }

// sector returns the path of the part of a band between two angles.
func sector(inner, outer, from, to float64) string {
	if to-from > 2*math.Pi-1e-6 {
		// The ends of one arc may not be the same point: two halves, the inner ones the other way
		// round.
		return half(outer, 0, 1) + half(outer, math.Pi, 1) + half(inner, 0, 0) + half(inner, math.Pi, 0)
	}
	large := 0
	if to-from > math.Pi {
		large = 1
	}
	x1, y1 := point(outer, from)
	x2, y2 := point(outer, to)
	x3, y3 := point(inner, to)
	x4, y4 := point(inner, from)
	o, i := number(outer), number(inner)
	return fmt.Sprintf("M%s %sA%s %s 0 %d 1 %s %sL%s %sA%s %s 0 %d 0 %s %sZ", x1, y1, o, o, large, x2, y2, x3, y3, i, i, large, x4, y4)
}

// half returns half a circle as a part of a path; with the other half it is a closed circle.
func half(radius, from float64, sweep int) string {
	x1, y1 := point(radius, from)
	x2, y2 := point(radius, from+math.Pi)
	r, start := number(radius), "M"+x1+" "+y1
	if from > 0 {
		start = ""
	}
	return fmt.Sprintf("%sA%s %s 0 0 %d %s %s", start, r, r, sweep, x2, y2)
}

func countState(ring Ring, state status.State) int {
	n := 0
	for _, s := range ring.Shards {
		if s.State == state {
			n++
		}
	}
	return n
}

func keys(m map[string]int) []string {
	all := make([]string, 0, len(m))
	for k := range m {
		all = append(all, k)
	}
	return all
}
