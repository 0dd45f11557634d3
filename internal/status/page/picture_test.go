package page

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

var coordinates = regexp.MustCompile(`-?\d+(\.\d+)?`)

// TestArcsCoverTheKeyspace checks that each arc begins where the previous one ends, and that the
// first begins and the last ends at the top.
func TestArcsCoverTheKeyspace(t *testing.T) {
	for _, n := range []int{2, 3, 16, 200} {
		d := document(t, newFake(t, n, 3))
		p := newPicture(d.Rings[0])
		if len(p.Arcs) != n {
			t.Fatalf("%d arcs of %d shards", len(p.Arcs), n)
		}
		last, top := number(centre), number(centre-outerRadius)
		for i, a := range p.Arcs {
			if want := "M" + last + " " + top; !strings.HasPrefix(a.Path, want) {
				t.Fatalf("arc %d of %d begins with %.20s, want %s", i, n, a.Path, want)
			}
			numbers := coordinates.FindAllString(a.Path, -1)
			last, top = numbers[7], numbers[8] // M x y A r r 0 large 1 x y
		}
		if last != number(centre) || top != number(centre-outerRadius) {
			t.Errorf("the last of %d arcs ends at %s %s", n, last, top)
		}
	}
}

func TestArcIsWhereTheHashIs(t *testing.T) {
	// A quarter of the keyspace is on the right, half of it at the bottom.
	quarter := shard.Range{Start: 1 << 62, End: 1 << 63}
	a := newArc(Shard{}, quarter)
	if want := fmt.Sprintf("M%s %sA", number(centre+outerRadius), number(centre)); !strings.HasPrefix(a.Path, want) {
		t.Errorf("the second quarter begins with %.30s, want %s", a.Path, want)
	}
	x, _ := strconv.ParseFloat(a.TagX, 64)
	y, _ := strconv.ParseFloat(a.TagY, 64)
	if x <= centre || y <= centre || math.Abs(x-y) > 0.02 {
		t.Errorf("its letter is at %v, %v, want it to the right below", x, y)
	}
}

// TestWholeKeyspace checks that a ring of one shard is a full band. An arc whose ends are the same
// point would draw nothing.
func TestWholeKeyspace(t *testing.T) {
	a := newArc(Shard{}, shard.Everything())
	if strings.Count(a.Path, "A") != 4 || strings.Count(a.Path, "M") != 2 {
		t.Errorf("the path is %s, want two circles of two halves each", a.Path)
	}
	if !a.Wide {
		t.Error("the arc has no room for a letter")
	}
}

func TestNarrowArcs(t *testing.T) {
	a := newArc(Shard{ShardView: status.ShardView{Shard: "namespaces/00"}}, shard.Range{Start: 5, End: 6})
	if a.Wide || a.Labelled || !a.Thin {
		t.Errorf("one hash of the keyspace: %+v", a)
	}
	wide := Shard{ShardView: status.ShardView{Shard: "namespaces/" + strings.Repeat("x", maxLabel+1)}}
	if newArc(wide, shard.Everything()).Labelled {
		t.Error("a long name is written next to the ring")
	}
	if got := newPicture(Ring{Shards: []Shard{{ShardView: status.ShardView{Range: "nonsense"}}}}); len(got.Arcs) != 0 {
		t.Errorf("a range that cannot be read: %+v", got)
	}
}

func namesToPalette(names ...string) palette {
	d := Document{}
	for _, name := range names {
		d.Members = append(d.Members, Member{MemberView: status.MemberView{Name: name}})
	}
	return newPalette(d)
}

func TestPalette(t *testing.T) {
	three := namesToPalette("flotilla-2", "flotilla-0", "flotilla-1")
	if got := three.tag("flotilla-0") + three.tag("flotilla-1") + three.tag("flotilla-2"); got != "ABC" {
		t.Errorf("a StatefulSet's members are %s", got)
	}
	more := namesToPalette("flotilla-10", "flotilla-2", "flotilla-0", "flotilla-1")
	for name := range three {
		if three[name] != more[name] {
			t.Errorf("%s changes its colour when a member joins", name)
		}
	}
	if got := three.tag("nobody"); got != "" {
		t.Errorf("a stranger is %q", got)
	}
	var many []string
	for i := range 60 {
		many = append(many, fmt.Sprintf("flotilla-6d4cf56db6-%05x", i*7919))
	}
	looks, tags := map[string]bool{}, map[string]bool{}
	p := namesToPalette(many...)
	for _, name := range many {
		looks[fmt.Sprint(p.colour(name), p.pattern(name))] = true
		tags[p.tag(name)] = true
	}
	if len(looks) != slots || len(tags) != len(many) {
		t.Errorf("%d members have %d looks and %d tags, want %d looks and a tag each", len(many), len(looks), len(tags), slots)
	}
	few := namesToPalette(many[:colours]...)
	plain := map[int]bool{}
	for name := range few {
		plain[few.colour(name)] = few.pattern(name) == 0
	}
	if len(plain) != colours {
		t.Errorf("%d members have %d plain colours", colours, len(plain))
	}
}
