package page

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/history"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// runbooks is the prefix of all links in findings.
const runbooks = "https://github.com/flotilla-kube/flotilla/blob/main/docs/runbooks/Flotilla"

var update = flag.Bool("update", false, "rewrite testdata/fields.txt")

// parsed returns a document's page as a browser would parse it.
func parsed(t *testing.T, d Document) *html.Node {
	t.Helper()
	var b bytes.Buffer
	if err := render(&b, d, 0); err != nil {
		t.Fatal(err)
	}
	node, err := html.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// all returns the elements that match.
func all(node *html.Node, match func(*html.Node) bool) []*html.Node {
	var found []*html.Node
	for n := range node.Descendants() {
		if n.Type == html.ElementNode && match(n) {
			found = append(found, n)
		}
	}
	return found
}

func tagged(name string) func(*html.Node) bool {
	return func(n *html.Node) bool { return n.Data == name }
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// text returns the text of a node that people read, without drawings.
func text(n *html.Node) string {
	var b strings.Builder
	var walk func(*html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
		}
		for c := range n.ChildNodes() {
			if c.Data != "svg" {
				walk(c)
			}
		}
	}
	walk(n)
	return strings.Join(strings.Fields(b.String()), " ")
}

// table returns the texts of a table's cells.
func table(t *testing.T, page *html.Node, id string) [][]string {
	t.Helper()
	found := all(page, func(n *html.Node) bool { return n.Data == "table" && attribute(n, "id") == id })
	if len(found) != 1 {
		t.Fatalf("%d tables %s", len(found), id)
	}
	var rows [][]string
	for _, row := range all(found[0], tagged("tr"))[1:] {
		var cells []string
		for c := range row.ChildNodes() {
			cells = append(cells, text(c))
		}
		rows = append(rows, cells)
	}
	return rows
}

func TestPageShowsWhatIs(t *testing.T) {
	f := busyFake(t)
	f.change(leaserecord.MemberLease(testFleet, "flotilla-0"), func(l *coordinationv1.Lease) {
		l.Annotations[leaseapi.UseAnnotation], l.Annotations[leaseapi.CatalogueAnnotation] = "1312/4711", "v1.37.1 00 "
	})
	d := document(t, f)
	page := parsed(t, d)
	wantMembers := [][]string{
		{"flotilla-0", "active", "1.0s", "4", "2 130", "40 MB", "", "1.31", "4 711", "25.0 %", "v1.37.1", "3", "all", "this one"},
		{"flotilla-1", "active", "1.0s", "3", "2 170", "41 MB", "25 MB", "", "", "25.0 %", "", "3", "all", "refuses plan 4: no such controller"},
		{"flotilla-2", "active", "1.0s", "2", "2 050", "42 MB", "20 MB", "", "", "25.0 %", "", "3", "all", "drained"},
		{"flotilla-3", "silent", "1m0s", "1", "1 040", "", "", "", "", "12.5 %", "", "3", "all", ""},
	}
	if diff := cmp.Diff(wantMembers, table(t, page, "t-members")); diff != "" {
		t.Errorf("members, want (-), got (+):\n%s", diff)
	}
	wantShards := [][]string{
		{"00", "running handoff, asked", "flotilla-2", "flotilla-0", "3", "30m0s", "1 020", "900", "0x0000000000000000-0x2000000000000000"},
		{"01", "running handoff", "flotilla-2", "flotilla-0", "4", "30m0s", "1 030", "901", "0x2000000000000000-0x4000000000000000"},
		{"02", "running handoff", "flotilla-3", "flotilla-1", "5", "30m0s", "1 040", "902", "0x4000000000000000-0x6000000000000000"},
		{"03", "unowned", "nobody", "flotilla-0", "6", "", "1 050", "903", "0x6000000000000000-0x8000000000000000"},
		{"04", "waiting", "flotilla-0", "", "7", "30m0s", "1 060", "904", "0x8000000000000000-0xa000000000000000"},
	}
	if diff := cmp.Diff(wantShards, table(t, page, "t-namespaces")[:5]); diff != "" {
		t.Errorf("shards, want (-), got (+):\n%s", diff)
	}
	wantTransitions := [][]string{
		{"2.0s", "03:04:03", "namespaces/01", "handed-over", "flotilla-0", "flotilla-1", "2", "12 ms"},
		{"30s", "03:03:35", "flotilla-1", "active", "", "", "", ""},
		{"1m0s", "03:03:05", "plan", "plan-changed", "2", "3", "", ""},
	}
	if diff := cmp.Diff(wantTransitions, table(t, page, "t-transitions")); diff != "" {
		t.Errorf("transitions, want (-), got (+):\n%s", diff)
	}
	whole := text(page)
	for _, want := range []string{
		"3 live of 4 members", "8 of 10 shards running", "4 in handoff", "1 unowned", "Refused here: generation 4: no such controller",
		"Waiting for shards of an older generation: namespaces/04", "Still held: flotilla-namespaces-old by flotilla-0, generation 2",
		"no: member flotilla-0 does not yet run namespaces/00", d.Plan.Digest, d.Rings[0].Hash, "v1.37.1",
	} {
		if !strings.Contains(whole, want) {
			t.Errorf("the page lacks %q: %s", want, whole)
		}
	}
	for _, f := range d.Findings {
		if !strings.Contains(whole, f.Message) {
			t.Errorf("the page lacks %q", f.Message)
		}
	}
	links := all(page, func(n *html.Node) bool { return strings.HasPrefix(attribute(n, "href"), runbooks) })
	if len(links) == 0 {
		t.Error("no finding has a link to its runbook")
	}
	requireMarks(t, page, map[string]int{"over": 5, "none": 1, "want": 3})
}

// TestPageComparesVersions requires a row for each version if there is a canary or members have
// several versions.
func TestPageComparesVersions(t *testing.T) {
	f := newFake(t, 8, 2)
	if page := parsed(t, document(t, f)); strings.Contains(text(page), "Wait p99") {
		t.Error("a fleet of one version has a table of versions")
	}
	for i, version := range []string{"v1.37.1", "v1.38.0"} {
		f.change(leaserecord.MemberLease(testFleet, fmt.Sprintf("flotilla-%d", i)), func(l *coordinationv1.Lease) {
			l.Annotations[leaseapi.CatalogueAnnotation], l.Annotations[leaseapi.UseAnnotation] = version+" 00 ", fmt.Sprintf("1/%d/20000/%d/500000/1000000", i, 500*i)
			l.Annotations[leaseapi.HealthAnnotation] = fmt.Sprintf("100000/%d/10000/250000", 2500*i)
		})
	}
	d := document(t, f)
	page := parsed(t, d)
	want := [][]string{
		{"v1.37.1", "1", fmt.Sprint(d.Members[0].Shards), "0.0 %", "0.0 %", "0", "10 ms", "250 ms", "500 ms", "1.0s"},
		{"v1.38.0", "1", fmt.Sprint(d.Members[1].Shards), "2.5 %", "2.5 %", "1", "10 ms", "250 ms", "500 ms", "1.0s"},
	}
	if diff := cmp.Diff(want, table(t, page, "t-versions")); diff != "" {
		t.Errorf("versions, want (-), got (+):\n%s", diff)
	}
}

// requireMarks requires this many paths of each class in the ring's picture.
func requireMarks(t *testing.T, page *html.Node, want map[string]int) {
	t.Helper()
	ring := all(page, func(n *html.Node) bool { return attribute(n, "class") == "ring" })
	if len(ring) != 1 {
		t.Fatalf("%d pictures", len(ring))
	}
	got := map[string]int{}
	for _, path := range all(ring[0], tagged("path")) {
		for _, class := range strings.Fields(attribute(path, "class")) {
			if _, ok := want[class]; ok {
				got[class]++
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("marks, want (-), got (+):\n%s", diff)
	}
}

func TestAccessibility(t *testing.T) {
	page := parsed(t, document(t, busyFake(t)))
	ids := map[string]bool{}
	for _, n := range all(page, func(n *html.Node) bool { return attribute(n, "id") != "" }) {
		if id := attribute(n, "id"); ids[id] {
			t.Errorf("two elements have id %q", id)
		} else {
			ids[id] = true
		}
	}
	for _, n := range all(page, func(*html.Node) bool { return true }) {
		if label := attribute(n, "aria-labelledby"); label != "" && !ids[label] {
			t.Errorf("%s is labelled by %q, which does not exist", n.Data, label)
		}
		if target, ok := strings.CutPrefix(attribute(n, "href"), "#"); ok && !ids[target] {
			t.Errorf("a link goes to %q, which does not exist", target)
		}
		if n.Data == "svg" && attribute(n, "aria-hidden") == "" && attribute(n, "aria-label") == "" {
			t.Error("a drawing has no label")
		}
		if n.Data == "th" && attribute(n, "scope") == "" {
			t.Errorf("header %q has no scope", text(n))
		}
	}
	if headings := all(page, tagged("h1")); len(headings) != 1 {
		t.Errorf("%d main headings", len(headings))
	}
	if len(all(page, func(n *html.Node) bool { return attribute(n, "name") == "viewport" })) != 1 {
		t.Error("the viewport is not set")
	}
}

// hostile are texts that somebody who may write Leases could leave.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onload='alert(1)`, `</style><script>alert(1)</script>`, `</title></svg><iframe>`,
	`{{.Self}}`, `javascript:alert(1)`, "a\x00b\x1b[31m\u202e\n\r", `&lt;b&gt;`, "\xff\xfe", strings.Repeat("W", 50_000), `url(https://example.com/)`, `_`,
}

// TestHostileTexts writes hostile texts wherever a Lease has one, and checks that the page shows
// them only as text.
func TestHostileTexts(t *testing.T) {
	calm := parsed(t, document(t, busyFake(t)))
	shapes := func(page *html.Node) map[string]bool {
		found := map[string]bool{}
		for _, n := range all(page, func(*html.Node) bool { return true }) {
			found[n.Data] = true
			for _, a := range n.Attr {
				found[n.Data+" "+a.Key] = true
			}
		}
		return found
	}
	known := shapes(calm)
	for _, n := range []string{"text class", "circle class", "span class"} {
		known[n] = true
	}
	for _, text := range hostile {
		f := busyFake(t)
		f.leases = append(f.leases, hostileLeases(text)...)
		for i := range f.leases {
			if f.leases[i].Name == leaseapi.PlanLease(testFleet) {
				continue
			}
			f.change(f.leases[i].Name, func(l *coordinationv1.Lease) {
				for _, key := range []string{
					leaserecord.NextHolderAnnotation, leaserecord.StateAnnotation, leaseapi.RingsAnnotation, leaseapi.GenerationAnnotation, leaseapi.RefusedAnnotation, leaseapi.CensusAnnotation,
				} {
					l.Annotations[key] = text
				}
				if i%2 == 0 {
					l.Spec.HolderIdentity = &text
				}
			})
		}
		for _, id := range []shard.ID{{}, {Ring: text, Name: text}} {
			f.journal = append(f.journal, entry(0, history.Transition{Kind: history.Kind(text), Shard: id, Member: text, From: text, To: text}))
		}
		d, _ := newDocument(Config{Fleet: testFleet, Member: "flotilla-0", Version: text}, []string{"leader-lock"}, f, nil, testNow)
		page := parsed(t, d)
		for shape := range shapes(page) {
			if !known[shape] {
				t.Errorf("%.40q makes an element or attribute %q", text, shape)
			}
		}
		for _, n := range all(page, func(*html.Node) bool { return true }) {
			if href := attribute(n, "href"); href != "" && href[0] != '#' && href[0] != '?' && !strings.HasPrefix(href, runbooks) {
				t.Errorf("%.40q makes a link to %.80q", text, href)
			}
			if n.Data == "style" && n.FirstChild.Data != css {
				t.Errorf("%.40q changes the style sheet", text)
			}
		}
		if strings.ContainsAny(textOf(page), "\x00\x1b\u202e") {
			t.Errorf("%.40q is on the page with its control characters", text)
		}
		if n := len(textOf(page)); n > 200_000 {
			t.Errorf("%.40q makes a page of %d characters", text, n)
		}
		var again Document
		if err := json.Unmarshal([]byte(asJSON(t, d)), &again); err != nil {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

// hostileLeases returns Leases of a member, of a shard of an older plan, and of a leader lock, with
// names as hostile as a fake allows.
func hostileLeases(text string) []election.Observation {
	f := &fakeMember{}
	f.add(named(leaserecord.MemberLease(testFleet, text), nil), text, 1, nil)
	f.add(named("flotilla-old-"+text, map[string]string{leaseapi.FleetLabel: testFleet, leaseapi.RingLabel: text, leaseapi.ShardLabel: text}), text, 1, map[string]string{leaseapi.RangeAnnotation: text})
	f.add(named("leader-lock", nil), text, 1, nil)
	return f.leases
}

func textOf(page *html.Node) string {
	var b strings.Builder
	for n := range page.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
		}
		for _, a := range n.Attr {
			b.WriteString(a.Val)
		}
	}
	return b.String()
}

func TestServing(t *testing.T) {
	p := New(testConfig)
	p.Show(busyFake(t), nil)
	tests := map[string]struct {
		method, target, accept string
		status                 int
		contentType, says      string
	}{
		"browser":         {http.MethodGet, "/fleet", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", 200, "text/html; charset=utf-8", "<!DOCTYPE html>"},
		"curl":            {http.MethodGet, "/fleet", "*/*", 200, "text/html; charset=utf-8", "<!DOCTYPE html>"},
		"nothing said":    {http.MethodGet, "/fleet", "", 200, "text/html; charset=utf-8", "<!DOCTYPE html>"},
		"accepts JSON":    {http.MethodGet, "/fleet", "application/json", 200, "application/json", `"fleet": "flotilla"`},
		"JSON first":      {http.MethodGet, "/fleet", "application/json, text/html", 200, "application/json", `"fleet": "flotilla"`},
		"JSON second":     {http.MethodGet, "/fleet", "text/html, application/json", 200, "text/html; charset=utf-8", "<!DOCTYPE html>"},
		"no JSON":         {http.MethodGet, "/fleet", "application/json;q=0, */*", 200, "text/html; charset=utf-8", "<!DOCTYPE html>"},
		"nonsense":        {http.MethodGet, "/fleet", ";;,", 200, "text/html; charset=utf-8", "<!DOCTYPE html>"},
		"format":          {http.MethodGet, "/fleet?format=json", "text/html", 200, "application/json", `"fleet": "flotilla"`},
		"other format":    {http.MethodGet, "/fleet?format=html", "application/json", 200, "text/html; charset=utf-8", "<!DOCTYPE html>"},
		"unknown format":  {http.MethodGet, "/fleet?format=xml", "", 400, "text/plain; charset=utf-8", `format="xml": must be html or json`},
		"refresh":         {http.MethodGet, "/fleet?refresh=7", "", 200, "text/html; charset=utf-8", `<meta http-equiv="refresh" content="7">`},
		"refresh too far": {http.MethodGet, "/fleet?refresh=0", "", 400, "text/plain; charset=utf-8", `refresh="0": must be a number of seconds from 1 to 3600`},
		"head":            {http.MethodHead, "/fleet", "", 200, "text/html; charset=utf-8", ""},
		"post":            {http.MethodPost, "/fleet", "", 405, "text/plain; charset=utf-8", "must be GET or HEAD"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			request := httptest.NewRequestWithContext(t.Context(), tc.method, tc.target, nil)
			request.Header.Set("Accept", tc.accept)
			answer := httptest.NewRecorder()
			p.ServeHTTP(answer, request)
			if answer.Code != tc.status || answer.Header().Get("Content-Type") != tc.contentType || !strings.Contains(answer.Body.String(), tc.says) {
				t.Errorf("answers %d, %s: %.200s", answer.Code, answer.Header().Get("Content-Type"), answer.Body)
			}
			if tc.method == http.MethodHead && answer.Body.Len() > 0 {
				t.Error("HEAD is answered with a body")
			}
			if tc.target == "/fleet" && strings.Contains(answer.Body.String(), "http-equiv") {
				t.Error("the page reloads itself although nobody asked")
			}
			for header, want := range map[string]string{
				"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": policy, "Vary": "Accept", "Referrer-Policy": "no-referrer",
			} {
				if got := answer.Header().Get(header); got != want {
					t.Errorf("%s is %q, want %q", header, got, want)
				}
			}
		})
	}
}

// TestPolicyFitsStyle checks that the policy allows nothing but the style element, by its hash.
func TestPolicyFitsStyle(t *testing.T) {
	styles := all(parsed(t, document(t, busyFake(t))), tagged("style"))
	if len(styles) != 1 {
		t.Fatalf("%d style elements", len(styles))
	}
	sum := sha256.Sum256([]byte(styles[0].FirstChild.Data))
	want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	if policy != want {
		t.Errorf("the policy is %q, want %q", policy, want)
	}
}

func TestPageIsSmall(t *testing.T) {
	if n := len(source) + len(css); n > 20_000 {
		t.Errorf("template and style sheet have %d bytes, must not have more than 20000", n)
	}
}

// TestWithoutFleet checks that a page with nothing to show says why.
func TestWithoutFleet(t *testing.T) {
	p := New(testConfig)
	if note := p.Document().Note; !strings.Contains(note, "has not joined the fleet") {
		t.Errorf("at first it says %q", note)
	}
	p.Say("There is no fleet.")
	d := p.Document()
	if whole := text(parsed(t, d)); !strings.Contains(whole, "There is no fleet.") || strings.Contains(whole, "Findings") {
		t.Errorf("it says %q", whole)
	}
	if got := asJSON(t, d); strings.Contains(got, "null") {
		t.Errorf("lists are missing: %s", got)
	}
	p.Show(&fakeMember{}, []string{"kube-controller-manager"})
	d = p.Document()
	whole := text(parsed(t, d))
	for _, want := range []string{"has no plan yet", "does not yet run", "Leader lock kube-controller-manager", "held by nobody"} {
		if !strings.Contains(whole, want) {
			t.Errorf("it does not say %q: %s", want, whole)
		}
	}
}

// TestUnreadablePlan checks that the rings are those of the last good plan, and that the page says
// what is wrong.
func TestUnreadablePlan(t *testing.T) {
	f := newFake(t, 4, 2)
	f.change(leaseapi.PlanLease(testFleet), func(l *coordinationv1.Lease) { l.Annotations[leaseapi.DocumentAnnotation] = "nonsense" })
	d := document(t, f)
	if len(d.Rings) != 2 || d.Plan.Generation != 3 || d.Plan.Unreadable == "" {
		t.Errorf("%d rings, plan %+v", len(d.Rings), d.Plan)
	}
	if !slices.ContainsFunc(d.Findings, func(f status.Finding) bool { return f.Kind == status.PlanUnreadable }) {
		t.Errorf("findings: %v", d.Findings)
	}
	if len(table(t, parsed(t, d), "t-namespaces")) != 4 {
		t.Error("the shards are not shown")
	}
}

func TestLeaderLocks(t *testing.T) {
	f := newFake(t, 2, 1)
	f.add(named("ours", nil), "x", 1, nil)
	f.change("ours", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To(leaseapi.LeaderLockIdentity(testFleet)) })
	f.add(named("theirs", nil), "stock", 1, nil)
	f.add(named("expired", nil), "stock", 1, nil)
	f.lease("expired").Seen = testNow.Add(-time.Hour)
	d, _ := newDocument(testConfig, []string{"ours", "theirs", "expired", "missing"}, f, nil, testNow)
	want := []LeaderLock{{Lease: "ours", Holder: "flotilla_fleet", Held: true}, {Lease: "theirs", Holder: "stock_uid"}, {Lease: "expired"}, {Lease: "missing"}}
	if diff := cmp.Diff(want, d.Self.LeaderLocks); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
}

// TestReadingsFollow checks that a lasting condition is reported if somebody has kept looking, and
// not if nobody was there to see it.
func TestReadingsFollow(t *testing.T) {
	for _, tc := range []struct {
		every time.Duration
		want  bool
	}{{20 * time.Second, true}, {2 * time.Minute, false}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, 4, 3)
			holder := f.lease("flotilla-namespaces-00").Holder
			f.change("flotilla-member-"+leaserecord.MemberOf(holder), func(l *coordinationv1.Lease) { l.Annotations[leaseapi.DrainAnnotation] = "yes" })
			f.reassign(t)
			f.change("flotilla-namespaces-00", func(l *coordinationv1.Lease) {
				l.Annotations[leaserecord.NextHolderAnnotation] = f.assignment.Owner(shard.ID{Ring: "namespaces", Name: "00"}) + "_uid"
			})
			p := New(testConfig)
			p.Show(f, nil)
			began, stuck := time.Now(), false
			for time.Since(began) < 10*time.Minute {
				f.now = testNow.Add(time.Since(began))
				for i := range f.leases {
					f.leases[i].Seen = f.now.Add(-time.Second)
				}
				stuck = slices.ContainsFunc(p.Document().Findings, func(f status.Finding) bool { return f.Kind == status.HandoffStuck })
				time.Sleep(tc.every)
			}
			if stuck != tc.want {
				t.Errorf("looked every %v: reported a stuck handoff: %v, want %v", tc.every, stuck, tc.want)
			}
		})
	}
}

func TestManyFindings(t *testing.T) {
	f := newFake(t, 40, 3)
	for _, o := range slices.Clone(f.leases) {
		if o.Labels[leaseapi.ShardLabel] != "" {
			f.change(o.Name, func(l *coordinationv1.Lease) { delete(l.Annotations, leaseapi.ControllersAnnotation) })
		}
	}
	f.change("flotilla-namespaces-00", func(l *coordinationv1.Lease) { delete(l.Annotations, leaseapi.RangeAnnotation) })
	d := document(t, f)
	if len(d.Findings) > maxFindings || d.FindingsLeftOut > 0 && !strings.Contains(text(parsed(t, d)), fmt.Sprintf("and %d more", d.FindingsLeftOut)) {
		t.Errorf("%d findings, %d left out", len(d.Findings), d.FindingsLeftOut)
	}
}

// TestFields compares the names and types in the JSON with testdata/fields.txt, because programs
// read them. To change one on purpose, run with -update, and document it in docs/status-page.md.
func TestFields(t *testing.T) {
	lines := map[string]bool{}
	fields(reflect.TypeFor[Document](), "", lines)
	got := strings.Join(slices.Sorted(maps.Keys(lines)), "\n") + "\n"
	const file = "testdata/fields.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-), now (+):\n%s", file, diff)
	}
}

// fields records the paths of all fields of a type with their kinds, as encoding/json sees them.
func fields(of reflect.Type, path string, lines map[string]bool) {
	switch {
	case of.Kind() == reflect.Pointer:
		fields(of.Elem(), path, lines)
	case of.Kind() == reflect.Slice:
		fields(of.Elem(), path+"[]", lines)
	case of.Kind() == reflect.Struct && of != reflect.TypeFor[time.Time]():
		for _, f := range reflect.VisibleFields(of) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if shadowed, _ := of.FieldByName(f.Name); !f.Anonymous && name != "-" && slices.Equal(shadowed.Index, f.Index) {
				fields(f.Type, path+"."+name, lines)
			}
		}
	default:
		lines[path+" "+of.Kind().String()] = true
	}
}

// BenchmarkPage renders the page of 200 shards and 16 members.
func BenchmarkPage(b *testing.B) {
	f := newFake(b, 198, 16)
	for range 200 {
		f.journal = append(f.journal, f.journal[2])
	}
	p := New(testConfig)
	p.Show(f, nil)
	for _, format := range []string{"html", "json"} {
		b.Run(format, func(b *testing.B) {
			request := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/fleet?format="+format, nil)
			for b.Loop() {
				answer := httptest.NewRecorder()
				p.ServeHTTP(answer, request)
				b.SetBytes(int64(answer.Body.Len()))
			}
		})
	}
}
