package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// logWriter writes an audit log. Times are milliseconds after its beginning, and each request takes
// 2 ms.
type logWriter struct{ strings.Builder }

func (s *logWriter) request(process, user, verb, object string, at, version int, answer string) {
	stamp := func(ms int) string {
		return time.Date(2026, 1, 1, 0, 0, 0, ms*int(time.Millisecond), time.UTC).Format("2006-01-02T15:04:05.000000Z")
	}
	resource, name, _ := strings.Cut(object, "/")
	fmt.Fprintf(s, `{"verb":%q,"userAgent":"%s/v1 (linux) x","user":{"username":%q},"objectRef":{"resource":%q,"namespace":"kube-system","name":%q},`+
		`"responseStatus":{"code":200},"responseObject":{"kind":"X","metadata":{"resourceVersion":"%d"}%s},"requestReceivedTimestamp":%q,"stageTimestamp":%q,"stage":"ResponseComplete"}`+"\n",
		verb, process, user, resource, name, version, answer, stamp(at), stamp(at+2))
}

// lease adds a process's write of the leader lock.
func (s *logWriter) lease(process, holder string, at, version int) {
	s.request(process, managerUser, "update", "leases/leader-lock", at, version, fmt.Sprintf(`,"spec":{"holderIdentity":%q,"leaseDurationSeconds":1}`, holder))
}

// write adds a write of a Pod by a controller of a process.
func (s *logWriter) write(process string, at, version int) {
	s.request(process, "system:serviceaccount:kube-system:job-controller", "update", "pods/a", at, version, "")
}

// moves adds a history: stock-1 holds the lock until 100 ms, nobody until 110 ms, the fleet until
// 200 ms, nobody until 250 ms, then stock-2.
func (s *logWriter) moves() {
	s.lease("stock-1", "vm_1", 0, 10)
	s.lease("stock-1", "vm_1", 50, 15)
	s.lease("stock-1", "", 100, 20)
	s.lease("flotilla", "flotilla_fleet", 110, 30)
	s.lease("flotilla", "", 200, 40)
	s.lease("stock-2", "vm_2", 250, 50)
}

// TestLeaderLockLog plants writes of processes that do not hold the Lease, and of some that do.
func TestLeaderLockLog(t *testing.T) {
	for name, tc := range map[string]struct {
		plant func(*logWriter)
		// want is the process of the one fault, and holder the holder then; empty for no fault.
		want, holder string
		succeeded    bool
	}{
		"each in its term": {plant: func(s *logWriter) {
			s.write("stock-1", 60, 16)
			s.write("flotilla", 120, 31)
			s.write("stock-2", 260, 51)
		}},
		"stock after the fleet has it":   {plant: func(s *logWriter) { s.write("stock-1", 130, 33) }, want: "stock-1", holder: "flotilla"},
		"stock after the fleet wrote":    {plant: func(s *logWriter) { s.write("flotilla", 120, 31); s.write("stock-1", 130, 33) }, want: "stock-1", holder: "flotilla", succeeded: true},
		"stock after its release":        {plant: func(s *logWriter) { s.write("stock-1", 104, 21) }, want: "stock-1"},
		"stock in transit":               {plant: func(s *logWriter) { s.write("stock-1", 99, 21) }, want: "stock-1"},
		"fleet before it has it":         {plant: func(s *logWriter) { s.write("flotilla", 105, 22) }, want: "flotilla"},
		"fleet after its release":        {plant: func(s *logWriter) { s.write("flotilla", 210, 41) }, want: "flotilla"},
		"fleet while stock leads":        {plant: func(s *logWriter) { s.write("flotilla", 20, 12) }, want: "flotilla", holder: "stock-1"},
		"fleet while the next one leads": {plant: func(s *logWriter) { s.write("flotilla", 270, 52) }, want: "flotilla", holder: "stock-2"},
		"an empty change in time":        {plant: func(s *logWriter) { s.write("flotilla", 150, 5) }},
		"an empty change too late":       {plant: func(s *logWriter) { s.write("flotilla", 270, 5) }, want: "flotilla", holder: "stock-2"},
		"no object in the answer, late":  {plant: func(s *logWriter) { s.write("flotilla", 270, 0) }, want: "flotilla", holder: "stock-2"},
		"never held the lock":            {plant: func(s *logWriter) { s.write("stock-3", 20, 12) }},
		"an event":                       {plant: func(s *logWriter) { s.request("flotilla", "x", "create", "events/a", 20, 12, "") }},
		"a Lease of its own":             {plant: func(s *logWriter) { s.request("flotilla", managerUser, "update", "leases/other", 20, 12, "") }},
		"a service account of its own":   {plant: func(s *logWriter) { s.request("flotilla", managerUser, "create", "serviceaccounts/a", 20, 12, "") }},
		"a read":                         {plant: func(s *logWriter) { s.request("flotilla", "x", "get", "pods/a", 20, 12, "") }},
	} {
		t.Run(name, func(t *testing.T) {
			var s logWriter
			s.moves()
			tc.plant(&s)
			log, err := readLeaderLockLog(strings.NewReader(s.String()), "leader-lock", everyWrite)
			if err != nil {
				t.Fatal(err)
			}
			faults := log.faults()
			if tc.want == "" {
				if len(faults) > 0 {
					t.Errorf("convicted %v", faults)
				}
				return
			}
			if len(faults) != 1 || faults[0].write.process != tc.want || faults[0].holder != tc.holder || log.succeeded(faults[0].write) != tc.succeeded {
				t.Errorf("got %v, want one of %s while %q held, succeeded %v", faults, tc.want, tc.holder, tc.succeeded)
			}
		})
	}
}

// TestLeaderLockLogMoves measures planned moves, and those of a holder that let the Lease expire or
// lost it too early.
func TestLeaderLockLogMoves(t *testing.T) {
	var s logWriter
	s.moves()
	s.write("stock-1", 90, 17)
	s.write("flotilla", 130, 31)
	s.write("flotilla", 190, 39)
	s.lease("flotilla", "flotilla_fleet", 1300, 60)
	s.lease("stock-3", "vm_3", 1400, 70)
	log, err := readLeaderLockLog(strings.NewReader(s.String()), "leader-lock", everyWrite)
	if err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	want := []move{
		{from: "stock-1", to: "flotilla", released: true, lease: 10 * ms, writes: 40 * ms, after: 30 * ms},
		{from: "flotilla", to: "stock-2", released: true, lease: 50 * ms},
		{from: "stock-2", to: "flotilla", lease: 1050 * ms},
		{from: "flotilla", to: "stock-3", lease: 100 * ms, early: true},
	}
	got := log.moves()
	if len(got) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("move %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
}

// TestLeaderLockLogStopped measures from a command to its effect. A term before the command does
// not count, nor does a release that has no successor.
func TestLeaderLockLogStopped(t *testing.T) {
	at := func(ms int) time.Time { return time.Date(2026, 1, 1, 0, 0, 0, ms*int(time.Millisecond), time.UTC) }
	twice := func(s *logWriter) {
		s.write("stock-2", 270, 51)
		s.lease("stock-2", "", 300, 60)
		s.lease("flotilla", "flotilla_fleet", 310, 70)
		s.lease("flotilla", "", 400, 80)
		s.lease("stock-3", "vm_3", 420, 90)
		s.write("stock-3", 430, 91)
	}
	for name, tc := range map[string]struct {
		given       int
		plant       func(*logWriter)
		freed, lead time.Duration
		wrote       time.Duration // after the release; 0 for an error
	}{
		"the replica after it":     {given: 150, plant: func(s *logWriter) { s.write("stock-2", 270, 51) }, freed: 52, lead: 50, wrote: 70},
		"not that of a later stop": {given: 150, plant: twice, freed: 52, lead: 50, wrote: 70},
		"the later stop":           {given: 350, plant: twice, freed: 52, lead: 20, wrote: 30},
		"stock led then":           {given: 90, plant: func(s *logWriter) { s.write("flotilla", 130, 31) }},
		"nobody led then":          {given: 105, plant: func(s *logWriter) { s.write("stock-2", 270, 51) }},
		"the term continues":       {given: 260, plant: func(s *logWriter) { s.lease("flotilla", "flotilla_fleet", 300, 60) }},
		"stock writes nothing":     {given: 150, plant: func(*logWriter) {}},
		"the Lease was not freed": {given: 1400, plant: func(s *logWriter) {
			s.lease("flotilla", "flotilla_fleet", 1350, 60)
			s.lease("stock-3", "vm_3", 2500, 70)
			s.write("stock-3", 2600, 71)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var s logWriter
			s.moves()
			tc.plant(&s)
			log, err := readLeaderLockLog(strings.NewReader(s.String()), "leader-lock", everyWrite)
			if err != nil {
				t.Fatal(err)
			}
			got, err := log.stopped(at(tc.given))
			if (err != nil) != (tc.wrote == 0) {
				t.Fatalf("%v: %v", got, err)
			}
			if ms := time.Millisecond; err == nil && (got.freed != tc.freed*ms || got.lease != tc.lead*ms || got.after != tc.wrote*ms) {
				t.Errorf("got %v", got)
			}
		})
	}
}
