package history

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

const (
	shardLease  = "flotilla-namespaces-00"
	memberLease = "flotilla-member-a"
	planLease   = "flotilla-plan"
)

var (
	start = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	// acquired and renewed are the stamps on every Lease.
	acquired, renewed = start.Add(-time.Hour), start.Add(-time.Minute)
	// ours are the labels of the shard's Lease.
	ours = leaseapi.ShardLabels("flotilla", shard.ID{Ring: "namespaces", Name: "00"})
)

type said = map[string]string

func seen(name, holder string, term int32, ago time.Duration, says, labels said) election.Observation {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: says, Labels: labels},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseTransitions: &term, LeaseDurationSeconds: ptr.To[int32](15),
			AcquireTime: ptr.To(metav1.NewMicroTime(acquired)), RenewTime: ptr.To(metav1.NewMicroTime(renewed)),
		},
	}
	return election.Observation{
		Record: leaserecord.From(lease), Exists: true, Seen: start.Add(-ago), Lease: lease,
	}
}

// seenShard returns the Lease of shard namespaces/00, last seen to change the duration ago before
// start.
func seenShard(holder string, term int32, ago time.Duration, says said) election.Observation {
	return seen(shardLease, holder, term, ago, says, ours)
}

// living is seenShard with a holder that lives by its member's heartbeat, last heard of ago before
// start. ended lists ended incarnations on that member's Lease.
func living(holder string, ago time.Duration, ended string, says said) election.Observation {
	o := seenShard(holder, 3, time.Hour, says)
	beat := seen(memberLease, holder, 1, ago, said{leaserecord.EndedAnnotation: ended}, nil)
	beat.Renewed, o.Heartbeat = beat.Seen, &beat
	return o
}

func seenMember(holder, state string, says said) election.Observation {
	all := said{leaserecord.StateAnnotation: state}
	maps.Copy(all, says)
	return seen(memberLease, holder, 1, 0, all, nil)
}

func seenPlan(says said) election.Observation {
	return seen(planLease, "", 0, 0, says, nil)
}

func absent(name string) election.Observation {
	return election.Observation{Record: leaserecord.Record{Name: name}, Seen: start}
}

// plan returns the annotations of a plan's Lease.
func plan(t *testing.T, generation int64) said {
	t.Helper()
	ring := shard.Ring{Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: []string{"job-controller"}}
	ring.Shards = []shard.Shard{{ID: shard.ID{Ring: "namespaces", Name: "00"}}}
	lease, err := leaseapi.WithPlan("flotilla", nil, shard.Plan{Generation: generation, Rings: []shard.Ring{ring}})
	if err != nil {
		t.Fatal(err)
	}
	return lease.Annotations
}

// tell returns the transitions as text, "<kind> <Lease> <shard> <member> <from>><to>", followed by
// their other fields.
func tell(happened []Transition) []string {
	var all []string
	for _, t := range happened {
		words := []string{string(t.Kind)}
		switch {
		case t.Member != "":
			words = append(words, "member "+t.Member)
		case t.Shard != shard.ID{}:
			words = append(words, t.Shard.String())
		default:
			words = append(words, t.Lease)
		}
		if t.From+t.To != "" {
			words = append(words, t.From+">"+t.To)
		}
		if t.Term != 0 {
			words = append(words, "term "+strconv.Itoa(int(t.Term)))
		}
		if t.Gap != 0 {
			words = append(words, "gap "+t.Gap.String())
		}
		switch {
		case t.Stamp.Equal(acquired):
			words = append(words, "when acquired")
		case t.Stamp.Equal(renewed):
			words = append(words, "when renewed")
		case !t.Stamp.IsZero():
			words = append(words, "at "+t.Stamp.Format(time.RFC3339))
		}
		all = append(all, strings.Join(words, " "))
	}
	return all
}

// between returns pairs of observations, and the transitions that they show.
func between(t *testing.T) map[string]struct {
	before, after election.Observation
	want          []string
} {
	asked := said{leaserecord.NextHolderAnnotation: "b_2"}
	unlabelled := func(holder string) election.Observation { return seen(shardLease, holder, 3, 0, nil, nil) }
	planned := func(holder string, term int32) election.Observation {
		return seen(planLease, holder, term, 0, plan(t, 1), nil)
	}
	drained := said{leaseapi.DrainAnnotation: "2027-01-02T03:00:00Z"}
	struck := said{leaserecord.ProtocolAnnotation: "2", leaserecord.EndedAnnotation: "a_1"}
	both := func(a, b said) said {
		a = maps.Clone(a)
		maps.Copy(a, b)
		return a
	}
	return map[string]struct {
		before, after election.Observation
		want          []string
	}{
		"seen for the first time": {election.Observation{}, seenShard("a_1", 3, 0, nil), nil},
		"renewed":                 {seenShard("a_1", 3, time.Second, nil), seenShard("a_1", 3, 0, nil), nil},
		"created":                 {absent(shardLease), seenShard("a_1", 1, 0, nil), []string{"acquired namespaces/00 >a term 1 when acquired"}},
		"released":                {seenShard("a_1", 3, 0, asked), seenShard("", 3, 0, asked), []string{"released namespaces/00 a> term 3 when renewed"}},
		"released late": {
			seenShard("a_1", 3, 0, asked), seenShard("", 3, 0, both(asked, said{leaserecord.StoppedAnnotation: "3 36s"})),
			[]string{"released namespaces/00 a> term 3 gap 36s when renewed"},
		},
		"acquired":       {seenShard("", 3, 0, asked), seenShard("b_2", 4, 0, nil), []string{"acquired namespaces/00 >b term 4 when acquired"}},
		"acquired again": {seenShard("a_1", 3, 0, nil), seenShard("a_1", 4, 0, nil), []string{"acquired namespaces/00 a>a term 4 when acquired"}},
		"release unseen": {
			seenShard("a_1", 3, 2*time.Second, asked), seenShard("b_2", 4, 0, nil),
			[]string{"handed-over namespaces/00 a>b term 4 when acquired"},
		},
		"release unseen of a living member": {
			living("a_1", 2*time.Second, "", asked), seenShard("b_2", 4, 0, nil),
			[]string{"handed-over namespaces/00 a>b term 4 when acquired"},
		},
		"taken over": {
			seenShard("a_1", 3, 15*time.Second, nil), seenShard("b_2", 4, 0, nil),
			[]string{"taken-over namespaces/00 a>b term 4 gap 15s when acquired"},
		},
		"taken over from a member that could not write": {
			seenShard("a_1", 3, 15*time.Second, said{leaserecord.StoppedAnnotation: "3 10s"}), seenShard("b_2", 4, 0, nil),
			[]string{"taken-over namespaces/00 a>b term 4 gap 25s when acquired"},
		},
		"taken over by a member that had asked": {
			seenShard("a_1", 3, 15*time.Second, asked), seenShard("b_2", 4, 0, nil),
			[]string{"taken-over namespaces/00 a>b term 4 gap 15s when acquired"},
		},
		"taken over from a dead member by a member that had asked": {
			living("a_1", 16*time.Second, "a_1", asked), seenShard("b_2", 4, 0, nil),
			[]string{"taken-over namespaces/00 a>b term 4 gap 16s when acquired"},
		},
		"taken by a member that had not asked": {
			seenShard("a_1", 3, time.Second, asked), seenShard("c_3", 4, 0, nil),
			[]string{"taken-over namespaces/00 a>c term 4 gap 1s when acquired"},
		},
		"stamps of two clocks": {
			seenShard("a_1", 3, -time.Hour, nil), seenShard("b_2", 4, 0, nil),
			[]string{"taken-over namespaces/00 a>b term 4 when acquired"},
		},
		"holder that is not an incarnation": {seenShard("", 3, 0, nil), seenShard("you", 4, 0, nil), []string{"acquired namespaces/00 >you term 4 when acquired"}},
		"holder with a long name": {
			seenShard("", 3, 0, nil), seenShard(strings.Repeat("x", 1000), 4, 0, nil),
			[]string{"acquired namespaces/00 >" + strings.Repeat("x", maxText) + "... term 4 when acquired"},
		},
		"shard deleted": {seenShard("a_1", 3, 0, nil), absent(shardLease), []string{"lease-deleted namespaces/00 a> term 3"}},
		"gone for long": {absent(shardLease), absent(shardLease), nil},
		"labels of another Lease": {
			seen("flotilla-x", "a_1", 1, 0, nil, ours), seen("flotilla-x", "", 1, 0, nil, ours),
			[]string{"released flotilla-x a> term 1 when renewed"},
		},
		"labels stripped": {seenShard("a_1", 3, 0, nil), unlabelled(""), []string{"released namespaces/00 a> term 3 when renewed"}},
		"labels restored": {unlabelled("a_1"), seenShard("", 3, 0, nil), []string{"released namespaces/00 a> term 3 when renewed"}},

		"asked":          {seenShard("a_1", 3, 0, nil), seenShard("a_1", 3, 0, asked), []string{"asked namespaces/00 a>b"}},
		"asked before":   {seenShard("a_1", 3, 0, asked), seenShard("a_1", 3, 0, asked), nil},
		"ready":          {seenShard("a_1", 3, 0, nil), seenShard("a_1", 3, 0, said{leaseapi.ReadyAnnotation: "3"}), []string{"ready namespaces/00 >a"}},
		"runs":           {seenShard("a_1", 3, 0, nil), seenShard("a_1", 3, 0, said{leaseapi.RunningAnnotation: "3"}), []string{"running namespaces/00 >a"}},
		"ran in term 2":  {seenShard("a_1", 3, 0, nil), seenShard("a_1", 3, 0, said{leaseapi.RunningAnnotation: "2"}), nil},
		"released, runs": {seenShard("", 3, 0, nil), seenShard("", 3, 0, said{leaseapi.RunningAnnotation: "3"}), nil},
		"acquired, runs": {
			seenShard("", 3, 0, asked), seenShard("b_2", 4, 0, said{leaseapi.RunningAnnotation: "4"}),
			[]string{"acquired namespaces/00 >b term 4 when acquired", "running namespaces/00 >b"},
		},

		"joined":         {absent(memberLease), seenMember("a_1", "joining", nil), []string{"joined member a term 1 when acquired"}},
		"joined at once": {absent(memberLease), seenMember("a_1", "active", nil), []string{"joined member a term 1 when acquired", "active member a"}},
		"renews":         {seenMember("a_1", "active", nil), seenMember("a_1", "active", nil), nil},
		"active":         {seenMember("a_1", "joining", nil), seenMember("a_1", "active", nil), []string{"active member a"}},
		"leaving":        {seenMember("a_1", "active", nil), seenMember("a_1", "leaving", nil), []string{"leaving member a"}},
		"nonsense":       {seenMember("a_1", "active", nil), seenMember("a_1", "dreaming", nil), nil},
		"left":           {seenMember("a_1", "leaving", nil), seenMember("", "leaving", nil), []string{"left member a term 1 when renewed"}},
		"found dead":     {seenMember("a_1", "active", said{leaserecord.ProtocolAnnotation: "2"}), seenMember("", "active", struck), []string{"silent member a term 1"}},
		"another start":  {seenMember("a_1", "active", nil), seenMember("a_2", "joining", nil), []string{"joined member a term 1 when acquired"}},
		"drained":        {seenMember("a_1", "active", nil), seenMember("a_1", "active", drained), []string{"drained member a at 2027-01-02T03:00:00Z"}},
		"drained oddly":  {seenMember("a_1", "active", nil), seenMember("a_1", "active", said{leaseapi.DrainAnnotation: "x"}), []string{"drained member a"}},
		"drained again":  {seenMember("a_1", "active", drained), seenMember("a_1", "active", said{leaseapi.DrainAnnotation: "x"}), nil},
		"undrained":      {seenMember("a_1", "active", drained), seenMember("a_1", "active", nil), []string{"undrained member a"}},
		"refuses":        {seenMember("a_1", "active", nil), seenMember("a_1", "active", said{leaseapi.RefusedAnnotation: "4: no"}), []string{"plan-refused member a >4"}},
		"works again":    {seenMember("a_1", "active", said{leaseapi.RefusedAnnotation: "4: no"}), seenMember("a_1", "active", nil), nil},
		"member deleted": {seenMember("a_1", "active", nil), absent(memberLease), []string{"lease-deleted member a"}},
		"member's Lease is retired": {
			seenMember("a_1", "active", nil), seenMember("", "", map[string]string{leaserecord.RetiredAnnotation: "7"}), nil,
		},
		"retired Lease of a member is collected": {
			seenMember("", "", map[string]string{leaserecord.RetiredAnnotation: "7"}), absent(memberLease), nil,
		},

		"first plan":   {absent(planLease), seenPlan(plan(t, 1)), []string{"plan-changed flotilla-plan >1"}},
		"plan changed": {seenPlan(plan(t, 1)), seenPlan(plan(t, 2)), []string{"plan-changed flotilla-plan 1>2"}},
		"plan touched": {seenPlan(plan(t, 1)), seenPlan(both(plan(t, 1), said{"x": "y"})), nil},
		"plan with a wrong generation annotation": {seenPlan(plan(t, 1)), seenPlan(both(plan(t, 2), said{leaseapi.GenerationAnnotation: "9"})), []string{"plan-changed flotilla-plan 1>2"}},
		"plan spoilt":   {seenPlan(plan(t, 1)), seenPlan(said{leaseapi.DocumentAnnotation: "{"}), []string{"plan-unreadable flotilla-plan"}},
		"plan put back": {seenPlan(said{leaseapi.DocumentAnnotation: "{"}), seenPlan(plan(t, 1)), []string{"plan-changed flotilla-plan >1"}},
		"plan deleted":  {seenPlan(plan(t, 1)), absent(planLease), []string{"lease-deleted flotilla-plan 1>"}},
		"stopped": {
			seenPlan(nil), seenPlan(said{leaseapi.StopAnnotation: "2027-01-02T03:00:00Z by me"}),
			[]string{"fleet-stopped flotilla-plan at 2027-01-02T03:00:00Z"},
		},
		"stopped oddly":   {seenPlan(nil), seenPlan(said{leaseapi.StopAnnotation: "x"}), nil},
		"started":         {seenPlan(said{leaseapi.StopAnnotation: "x"}), seenPlan(nil), []string{"fleet-started flotilla-plan"}},
		"first planner":   {planned("", 0), planned("a_1", 1), []string{"acquired flotilla-plan >a term 1 when acquired"}},
		"another planner": {planned("a_1", 1), planned("b_1", 2), []string{"taken-over flotilla-plan a>b term 2 when acquired"}},
		"no planner":      {planned("a_1", 1), planned("", 1), []string{"released flotilla-plan a> term 1 when renewed"}},
	}
}

func TestBetween(t *testing.T) {
	for name, tc := range between(t) {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tell(Between("flotilla", tc.before, tc.after))); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

func TestLast(t *testing.T) {
	ended := said{leaserecord.ProtocolAnnotation: "2", leaserecord.EndedAnnotation: "a_1"}
	stop := said{leaseapi.StopAnnotation: "2027-01-02T03:00:00Z"}
	for name, tc := range map[string]struct {
		o      election.Observation
		lapsed bool
		want   []string
	}{
		"absent":      {absent(shardLease), false, nil},
		"never held":  {seenShard("", 0, 0, nil), false, nil},
		"held":        {seenShard("a_1", 3, 0, nil), false, []string{"acquired namespaces/00 >a term 3 when acquired"}},
		"released":    {seenShard("", 3, 0, nil), false, []string{"released namespaces/00 term 3 when renewed"}},
		"expired":     {seenShard("a_1", 3, 0, nil), true, []string{"acquired namespaces/00 >a term 3 when acquired", "expired namespaces/00 a> term 3 at 2027-01-02T03:03:20Z"}},
		"member":      {seenMember("a_1", "active", nil), false, []string{"joined member a term 1 when acquired"}},
		"member left": {seenMember("", "leaving", nil), false, []string{"left member a term 1 when renewed"}},
		"silent":      {seenMember("a_1", "active", nil), true, []string{"joined member a term 1 when acquired", "silent member a term 1 at 2027-01-02T03:03:20Z"}},
		"found dead":  {seenMember("", "active", ended), false, []string{"silent member a term 1 at 2027-01-02T03:03:20Z"}},
		"drained": {
			seenMember("", "leaving", said{leaseapi.DrainAnnotation: "2027-01-02T03:00:00Z"}), false,
			[]string{"left member a term 1 when renewed", "drained member a at 2027-01-02T03:00:00Z"},
		},
		"retired": {seenMember("", "", said{leaserecord.RetiredAnnotation: "7"}), false, nil},
		"stopped": {seenPlan(stop), false, []string{"fleet-stopped flotilla-plan at 2027-01-02T03:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tell(Last("flotilla", tc.o, tc.lapsed))); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

// TestLastAgrees checks that a single observation shows the last transition by the same word and at
// the same time as a watcher saw it, if it can know the kind.
func TestLastAgrees(t *testing.T) {
	agreed := 0
	for name, tc := range between(t) {
		last := map[Kind]Transition{}
		for _, l := range Last("flotilla", tc.after, false) {
			last[l.Kind] = l
		}
		for _, b := range Between("flotilla", tc.before, tc.after) {
			l, knows := last[b.Kind]
			if !knows || b.Stamp.IsZero() {
				continue
			}
			agreed++
			if l.Lease != b.Lease || l.Member != b.Member || l.To != b.To || l.Term != b.Term || !l.Stamp.Equal(b.Stamp) {
				t.Errorf("%s: Between found %s\nLast found %s", name, tell([]Transition{b}), tell([]Transition{l}))
			}
		}
	}
	if agreed < 10 {
		t.Errorf("only %d were compared", agreed)
	}
}

func TestSilence(t *testing.T) {
	got := tell([]Transition{
		Lapsed("flotilla", seenShard("a_1", 3, 0, nil)),
		Lapsed("flotilla", seenMember("a_1", "active", nil)),
		Lapsed("flotilla", seenPlan(nil)),
		Resumed("flotilla", seenMember("a_1", "active", nil)),
	})
	want := []string{"expired namespaces/00 a> term 3", "silent member a term 1", "expired flotilla-plan", "returned member a"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
}

// TestEveryKindIsTold finds a kind that no case above produces.
func TestEveryKindIsTold(t *testing.T) {
	told := map[Kind]bool{Returned: true, Expired: true} // by Resumed and Lapsed
	for _, tc := range between(t) {
		for _, happened := range Between("flotilla", tc.before, tc.after) {
			told[happened.Kind] = true
		}
	}
	file, err := parser.ParseFile(token.NewFileSet(), "kind.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	kinds := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, is := n.(*ast.ValueSpec); is {
			kinds++
			literal := spec.Values[0].(*ast.BasicLit).Value
			if word, err := strconv.Unquote(literal); err != nil || !told[Kind(word)] {
				t.Errorf("no case produces %s", spec.Names[0])
			}
		}
		return true
	})
	if kinds < 20 {
		t.Errorf("kind.go has only %d kinds: the test misses some", kinds)
	}
}

// BenchmarkRenewal measures what each renewal costs everyone that watches.
func BenchmarkRenewal(b *testing.B) {
	says := said{leaseapi.RunningAnnotation: "3", leaseapi.GenerationAnnotation: "1"}
	for what, pair := range map[string][2]election.Observation{
		"shard":  {seenShard("a_1", 3, time.Second, says), seenShard("a_1", 3, 0, says)},
		"member": {seenMember("a_1", "active", nil), seenMember("a_1", "active", nil)},
	} {
		b.Run(what, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if Between("flotilla", pair[0], pair[1]) != nil {
					b.Fatal("a renewal is no transition")
				}
			}
		})
	}
}
