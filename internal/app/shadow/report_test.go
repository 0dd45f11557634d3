package shadow

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// after lets time pass in a bubble of virtual time.
func after(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
	}
}

// reporting returns the reporter of a shadow that has seen something of every kind.
func reporting() (*Reporter, *time.Time) {
	now := time.Unix(1000, 0)
	s := New("", func() time.Time { return now })
	full := false
	r := NewReporter(s, func() Member {
		m := Member{
			Version: "v1", Fleet: "flotilla", Shadow: "1/2", Plan: "that of a new fleet", Shards: []string{"cluster/nodes", "namespaces/00"}, Ready: full,
			NotRun: []string{"persistentvolume-binder-controller"}, Ignored: []string{"--leader-lock"}, Memory: Memory{Live: 100e6, Resident: 200e6, ResidentPeak: 300e6, Objects: 1234},
		}
		if !full {
			m.NotReady = "0 of the shadow's 2 shards have filled their caches"
		}
		return m
	})
	lists := s.load.of(request{Kind: Kind{Verb: "list", Resource: "pods"}})
	lists.requests.Store(1)
	lists.bytes.Store(5e6)
	watches := s.load.of(request{Kind: Kind{Verb: "watch", Resource: "pods"}})
	watches.open.Store(1)
	watches.requests.Store(1)
	watches.events.Store(10)
	s.load.of(request{Kind: Kind{Verb: "get", Resource: "secrets"}}).refused.Store(2)
	s.rights.missing = []Right{{Kind: Kind{Client: "x", Verb: "create", Resource: "pods"}, Namespace: "a"}, {User: "u", Kind: Kind{Client: "y", Verb: "watch", Group: "apps", Resource: "deployments"}}}
	s.writes.add(of(create, "a", "one"), now)
	now = now.Add(LastingAfter)
	s.writes.add(of(create, "a", "one"), now)
	r.Report()
	full = true
	r.Report()
	now = now.Add(10 * time.Second)
	watches.events.Add(50)
	watches.bytes.Add(20_000)
	return r, &now
}

const wantText = `SHADOW of member 1/2 of fleet flotilla, v1, for 40s
Plan:        that of a new fleet
Shards:      2: cluster/nodes namespaces/00
Caches:      full after 30s, 1234 objects
Memory:      100.0 MB live heap, 200.0 MB resident, 300.0 MB at the most
Watches:     1 open; 5.0 MB and 60 events received so far; with full caches 5.0 events/s, 2.0 kB/s
Rights:      2 missing, 0 granted, 0 not known
Writes:      1 object, 1 lasting; none was sent. Events: 0
Not run:     persistentvolume-binder-controller
Ignored:     --leader-lock

WOULD WRITE              AS                     OBJECTS  LASTING  ATTEMPTS  FOR EXAMPLE
create replicasets.apps  deployment-controller  1        1        2         a/one

MISSING RIGHT           OF             FOR  IN
create pods             this identity  x    a
watch deployments.apps  u              y    the cluster

REFUSED TO THE SHADOW ITSELF  TIMES
get secrets                   2

READ         REQUESTS  OPEN  RECEIVED  EVENTS
list pods    1         0     5.0 MB    0
watch pods   1         1     0.0 MB    60
get secrets  0         0     0.0 MB    0
`

func TestReport(t *testing.T) {
	r, _ := reporting()
	var b strings.Builder
	if err := r.Report().Text(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantText, b.String()); diff != "" {
		t.Error(diff)
	}
}

func TestReportSaysWhatItCouldNotFollow(t *testing.T) {
	r, _ := reporting()
	report := r.Report()
	report.Uncounted = 12
	var b strings.Builder
	if err := report.Text(&b); err != nil {
		t.Fatal(err)
	}
	if want := "Events: 0\nUncounted:   12 attempts on objects that there was no room to follow\n"; !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, b.String())
	}
}

// TestServesReport: the report is served as text and as JSON.
func TestServesReport(t *testing.T) {
	r, _ := reporting()
	for target, want := range map[string]int{"/shadow": http.StatusOK, "/shadow?output=json": http.StatusOK, "/shadow?output=yaml": http.StatusBadRequest} {
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", target, w.Code, want)
		}
		if strings.HasSuffix(target, "=json") {
			var got Report
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Lasting != 1 || got.Writes[0].Name() != "replicasets.apps" || got.Member.Shadow != "1/2" {
				t.Errorf("%+v: %v", got, err)
			}
		}
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/shadow", http.NoBody))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}
