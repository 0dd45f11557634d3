package browser

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flotilla-kube/flotilla/internal/status/page"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/history"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

var shots = flag.String("shots", "", "directory for pictures of the page: docs/img")

const (
	fleetName = "flotilla"
	// wide and narrow are the widths of a page on a desktop and on a phone.
	wide, narrow = 1200, 375
	// mostBytes limits the size of a picture.
	mostBytes = 200_000
)

// requireAlone requires that a process outside any fleet says so.
func requireAlone(t *testing.T, env *environment) {
	alone := env.start(t, "alone", "--leader-elect=false", "--controllers=ttl-controller")
	alone.until(t, "a page without a fleet", func(d page.Document) error {
		if !strings.Contains(d.Note, "--leader-elect=false") || len(d.Members)+len(d.Rings) > 0 {
			return fmt.Errorf("the note is %q", d.Note)
		}
		return nil
	})
}

// TestPage has a fleet of three with one member suspended and drained, so that its shards are
// requested and not released.
func TestPage(t *testing.T) {
	env := newEnvironment(t)
	t.Run("alone", func(t *testing.T) { requireAlone(t, env) })
	env.work(t)
	founder := env.start(t, "flotilla-0", quick...)
	founder.until(t, "a first plan and every Lease", allRun(1))
	founder.MustStop(t)
	var members []*member
	for i := range 3 {
		members = append(members, env.start(t, fmt.Sprintf("flotilla-%d", i), slow...))
	}
	first, holder := members[0], members[2]
	first.until(t, "a fleet of three at rest", allRun(3))
	t.Run("access", func(t *testing.T) { requireAccess(t, first) })

	if err := holder.Suspend(); err != nil {
		t.Fatal(err)
	}
	drain := fmt.Sprintf(`{"metadata":{"annotations":{%q:"for the picture"}}}`, leaseapi.DrainAnnotation)
	if _, err := env.client.CoordinationV1().Leases(metav1.NamespaceSystem).Patch(t.Context(), leaserecord.MemberLease(fleetName, holder.Name()), types.MergePatchType, []byte(drain), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	d := first.until(t, "every shard of the drained member asked for", allAsked(holder.Name()))
	t.Run("same as Leases", func(t *testing.T) { requireLeases(t, env, d) })
	t.Run("browser", func(t *testing.T) {
		path := findBrowser()
		if path == "" {
			t.Skip(noBrowser)
		}
		b := startBrowser(t, path)
		url := first.proxy(t)
		b.resize(t, wide, 900, false)
		requireInBrowser(t, b, url, first)
		if *shots != "" {
			shoot(t, b, url)
		}
	})

	if again, err := first.document(t.Context()); err != nil || len(again.Transitions) != len(d.Transitions) {
		t.Errorf("shards moved during the test, so its results are void: %v, %v", err, again.Transitions)
	}
	if err := holder.Resume(); err != nil {
		t.Fatal(err)
	}
	d = first.until(t, "all handed over", allRun(2))
	requireLeases(t, env, d)
	handed := 0
	for _, happened := range d.Transitions {
		if happened.Kind == history.HandedOver && happened.From == holder.Name() {
			handed++
		}
	}
	if handed == 0 {
		t.Errorf("%[2]s shows nothing that %[1]s handed over: %[3]v", holder.Name(), first.Name(), d.Transitions)
	}
}

// allRun returns a condition: this many members hold everything, and each range has been counted.
func allRun(members int) func(page.Document) error {
	return func(d page.Document) error {
		holders := map[string]bool{}
		for _, s := range shardsOf(d) {
			if s.State != "running" || s.MovingTo != "" || s.Range != "" && s.Objects == nil {
				return fmt.Errorf("%s is %s at %q, moving to %q, counted: %v", s.Shard, s.State, s.Holder, s.MovingTo, s.Objects != nil)
			}
			holders[s.Holder] = true
		}
		if len(holders) != members {
			return fmt.Errorf("held by %v", holders)
		}
		return nil
	}
}

// allAsked returns a condition: the member holds some shards, all of them have been asked for, and
// nothing else moves.
func allAsked(holder string) func(page.Document) error {
	return func(d page.Document) error {
		n := 0
		for _, s := range shardsOf(d) {
			switch {
			case s.Holder == holder && !s.Asked:
				return fmt.Errorf("%s is not asked for", s.Shard)
			case s.Holder == holder:
				n++
			case s.MovingTo != "" || s.State != "running":
				return fmt.Errorf("%s is %s and moving to %q", s.Shard, s.State, s.MovingTo)
			}
		}
		if n == 0 {
			return errors.New("it holds nothing")
		}
		return nil
	}
}

func shardsOf(d page.Document) []page.Shard {
	var all []page.Shard
	for _, r := range d.Rings {
		all = append(all, r.Shards...)
	}
	return all
}

// requireAccess checks that the page has its own authorization.
func requireAccess(t *testing.T, m *member) {
	for _, tc := range []struct {
		caller, method string
		want           int
	}{
		{"anonymous", http.MethodGet, http.StatusForbidden},
		{"of-metrics", http.MethodGet, http.StatusForbidden},
		{"of-fleet", http.MethodGet, http.StatusOK},
		{"of-fleet", http.MethodHead, http.StatusForbidden}, // HEAD is its own verb
		{"of-fleet", http.MethodPost, http.StatusForbidden},
		{"admin", http.MethodHead, http.StatusOK},
		{"admin", http.MethodPost, http.StatusMethodNotAllowed},
	} {
		response, body, err := m.ask(t.Context(), tc.caller, tc.method, "")
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != tc.want {
			t.Errorf("%s by %s answers %d, want %d: %.200s", tc.method, tc.caller, response.StatusCode, tc.want, body)
		}
		if got := response.Header.Get("Cache-Control"); tc.want == http.StatusOK && got != "no-store" {
			t.Errorf("Cache-Control is %q", got)
		}
	}
}

// requireLeases compares the document with the Leases: every shard of the plan, its holder and its
// term.
func requireLeases(t *testing.T, env *environment, d page.Document) {
	t.Helper()
	leases := env.leases(t)
	planLease := leases[leaseapi.PlanLease(fleetName)]
	plan, err := leaseapi.PlanOn(&planLease)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		Holder, Next string
		Term         int32
		Range        string
	}
	want, got := map[string]row{}, map[string]row{}
	for _, s := range plan.Shards() {
		lease := leases[leaseapi.ShardLease(fleetName, s.ID)]
		r := row{Holder: leaserecord.MemberOf(*lease.Spec.HolderIdentity), Term: *lease.Spec.LeaseTransitions, Next: leaserecord.MemberOf(lease.Annotations[leaserecord.NextHolderAnnotation])}
		if s.Namespaced() {
			r.Range = s.Range.String()
		}
		want[s.ID.String()] = r
	}
	for _, s := range shardsOf(d) {
		got[s.Shard] = row{Holder: s.Holder, Term: s.Term, Next: s.MovingTo, Range: s.Range}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Leases (-), page (+):\n%s", diff)
	}
	for _, m := range d.Members {
		if lease, ok := leases[leaserecord.MemberLease(fleetName, m.Name)]; !ok || *lease.Spec.HolderIdentity != m.Incarnation {
			t.Errorf("member %s is %s on the page, and not on its Lease", m.Name, m.Incarnation)
		}
	}
}

func requireInBrowser(t *testing.T, b *browser, url string, m *member) {
	b.open(t, url)
	requests, complaints := b.noted()
	if !slices.Equal(requests, []string{url}) {
		t.Errorf("requests: %q, want the page alone", requests)
	}
	if len(complaints) > 0 {
		t.Errorf("on the console: %q", complaints)
	}
	d, err := m.document(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("same as JSON", func(t *testing.T) { requireTables(t, b, d) })
	t.Run("picture", func(t *testing.T) { requirePicture(t, b, d) })
	for _, scheme := range []string{"light", "dark"} {
		t.Run("contrast "+scheme, func(t *testing.T) {
			b.scheme(t, scheme)
			requireContrast(t, b)
		})
	}
	t.Run("phone", func(t *testing.T) {
		b.resize(t, narrow, 800, true)
		defer b.resize(t, wide, 900, false)
		b.open(t, url)
		if width := evaluate[int](t, b, "document.documentElement.scrollWidth"); width > narrow {
			t.Errorf("the page is %d px wide in a viewport of %d px", width, narrow)
		}
	})
}

// cells reads a table: its rows, each with its cells' texts, without the drawings.
const cells = `(id => [...document.querySelectorAll('#' + id + ' tbody tr')].map(row => [...row.cells].map(cell => {
	const copy = cell.cloneNode(true)
	copy.querySelectorAll('svg').forEach(drawing => drawing.remove())
	return copy.textContent.replace(/\s+/g, ' ').trim()
})))`

// requireTables compares the texts in the tables with the JSON, except for what changes every
// second.
func requireTables(t *testing.T, b *browser, d page.Document) {
	read := func(id string, columns ...int) [][]string {
		var picked [][]string
		for _, row := range evaluate[[][]string](t, b, cells+"("+strconv.Quote(id)+")") {
			var some []string
			for _, column := range columns {
				some = append(some, row[column])
			}
			picked = append(picked, some)
		}
		return picked
	}
	var want [][]string
	for _, m := range d.Members {
		remark := ""
		if m.Drained {
			remark = "drained"
		}
		if m.Self {
			remark = "this one"
		}
		want = append(want, []string{m.Name, m.State, strconv.Itoa(m.Shards), m.Version, m.Generation, remark})
	}
	if diff := cmp.Diff(want, read("t-members", 0, 1, 3, 10, 11, 13)); diff != "" || len(want) != 3 {
		t.Errorf("members: JSON (-), page (+):\n%s", diff)
	}
	moving := 0
	for _, ring := range d.Rings {
		want = nil
		for _, s := range ring.Shards {
			id, err := shard.ParseID(s.Shard)
			if err != nil {
				t.Fatal(err)
			}
			state, owner, what := string(s.State), "", s.Range
			if s.MovingTo != "" {
				state, owner = state+" handoff, asked", s.MovingTo
				moving++
			}
			if what == "" {
				what = strings.Join(s.Controllers, ", ")
			}
			want = append(want, []string{id.Name, state, s.Holder, owner, strconv.Itoa(int(s.Term)), what})
		}
		if diff := cmp.Diff(want, read("t-"+ring.Name, 0, 1, 2, 3, 4, 8)); diff != "" {
			t.Errorf("ring %s: JSON (-), page (+):\n%s", ring.Name, diff)
		}
	}
	if moving == 0 {
		t.Error("no handoff is visible")
	}
	if got := len(read("t-transitions", 0)); got != len(d.Transitions) || got == 0 {
		t.Errorf("%d transitions on the page, %d in the JSON", got, len(d.Transitions))
	}
}

// requirePicture requires that a ring has an arc for each shard, and a marked one for each handoff.
func requirePicture(t *testing.T, b *browser, d page.Document) {
	for _, ring := range d.Rings {
		if ring.Scope != shard.ScopeNamespaced {
			continue
		}
		moving := 0
		for _, s := range ring.Shards {
			if s.MovingTo != "" {
				moving++
			}
		}
		type drawing struct {
			Arcs, Marked int
			Label        string
			Titles       []string
		}
		got := evaluate[drawing](t, b, `(drawing => ({
			Arcs: drawing.querySelectorAll('a > path.arc').length, Marked: drawing.querySelectorAll('a > path.over').length,
			Label: drawing.getAttribute('aria-label'), Titles: [...drawing.querySelectorAll('a > title')].map(title => title.textContent),
		}))(document.querySelector('svg.ring'))`)
		if got.Arcs != len(ring.Shards) || got.Marked != moving || moving == 0 {
			t.Errorf("%d arcs of which %d are marked, want %d and %d", got.Arcs, got.Marked, len(ring.Shards), moving)
		}
		if want := fmt.Sprintf("%d in handoff", moving); !strings.Contains(got.Label, want) {
			t.Errorf("the label is %q, want it to say %q", got.Label, want)
		}
		for i, s := range ring.Shards {
			if i >= len(got.Titles) || !strings.Contains(got.Titles[i], s.Shard) || !strings.Contains(got.Titles[i], "held by "+s.Holder) {
				t.Errorf("the tooltips are %q, want one for %s that names %s", got.Titles, s.Shard, s.Holder)
			}
		}
	}
}

// contrasts returns the texts whose contrast with their background is less than 4.5 to 1 (WCAG 2.2,
// 1.4.3), and the number of texts. The background of a text in a drawing is what was drawn before
// it, other than text.
const contrasts = `(() => {
	const rgb = text => (text.match(/[\d.]+/g) || []).map(Number)
	const light = text => {
		const [r, g, b] = rgb(text).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		return 0.2126 * r + 0.7152 * g + 0.0722 * b
	}
	const opaque = color => { const c = rgb(color); return c.length === 3 || c[3] === 1 }
	const behind = element => {
		for (let e = element; e; e = e.parentElement) {
			const color = getComputedStyle(e).backgroundColor
			if (opaque(color)) return color
		}
		return 'rgb(255, 255, 255)'
	}
	let texts = 0
	const poor = []
	for (const e of document.querySelectorAll('body *')) {
		if (!e.getClientRects().length || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue
		if (e.closest('title')) continue
		const style = getComputedStyle(e)
		let front = style.color, back = behind(e)
		if (e instanceof SVGElement) {
			front = style.fill
			const under = e.previousElementSibling
			if (under && (e.matches('.tag') || e.closest('.who')) && !under.matches('text')) back = getComputedStyle(under).fill
		}
		const [a, b] = [light(front), light(back)]
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)
		texts++
		if (!(ratio >= 4.5)) poor.push(e.textContent.trim().slice(0, 40) + ': ' + front + ' on ' + back + ', ' + ratio.toFixed(2))
	}
	return {Texts: texts, Poor: poor, Back: behind(document.body)}
})()`

func requireContrast(t *testing.T, b *browser) {
	type contrast struct {
		Texts int
		Poor  []string
		Back  string
	}
	got := evaluate[contrast](t, b, contrasts)
	if got.Texts < 100 || len(got.Poor) > 0 {
		t.Errorf("%d texts, too little contrast:\n%s", got.Texts, strings.Join(got.Poor, "\n"))
	}
	t.Logf("%d texts on %s", got.Texts, got.Back)
}

// shoot writes pictures of the page, down to the history.
func shoot(t *testing.T, b *browser, url string) {
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(t, scheme)
		b.open(t, url)
		height := evaluate[float64](t, b, "Math.ceil(document.getElementById('happened').closest('section').getBoundingClientRect().bottom + 16)")
		if size := b.picture(t, filepath.Join(*shots, "fleet-"+scheme+".png"), wide, height); size > mostBytes {
			t.Errorf("fleet-%s.png has %d bytes, must not have more than %d", scheme, size, mostBytes)
		}
	}
	b.scheme(t, "light")
	b.resize(t, narrow, 800, true)
	b.open(t, url)
	b.picture(t, filepath.Join(*shots, "fleet-phone.png"), narrow, 1400)
}
