package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var (
	epoch     = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	testShard = shard.ID{Ring: "namespaces", Name: "00"}
)

const testLease = "flotilla-namespaces-00"

// line returns an event of the log that was answered this long after the epoch.
func line(t *testing.T, after time.Duration, verb, resource, namespace, name, subresource, agent, object string) *harness.Event {
	t.Helper()
	stamp := epoch.Add(after).Format("2006-01-02T15:04:05.000000Z")
	text := fmt.Sprintf(`{"verb":%q,"userAgent":%q,"stage":"ResponseComplete","responseStatus":{"code":200},
		"objectRef":{"resource":%q,"namespace":%q,"name":%q,"subresource":%q},
		"responseObject":%s,"requestReceivedTimestamp":%q,"stageTimestamp":%q}`,
		verb, agent, resource, namespace, name, subresource, object, stamp, stamp)
	e := &harness.Event{}
	if err := json.Unmarshal([]byte(text), e); err != nil {
		t.Fatal(err)
	}
	return e
}

func leaseLine(t *testing.T, after time.Duration, version int, holder string, term int) *harness.Event {
	t.Helper()
	return stampedLine(t, after, after, version, holder, term)
}

// stampedLine returns a write of a Lease whose renew time differs from the time of the write.
func stampedLine(t *testing.T, after, renewed time.Duration, version int, holder string, term int) *harness.Event {
	t.Helper()
	stamp := epoch.Add(renewed).Format("2006-01-02T15:04:05.000000Z")
	return line(t, after, "update", "leases", "kube-system", testLease, "", "flotilla/v1", fmt.Sprintf(
		`{"metadata":{"resourceVersion":"%d"},"spec":{"holderIdentity":%q,"leaseTransitions":%d,"renewTime":%q}}`, version, holder, term, stamp))
}

func TestJournalTellsLostFromHandedOver(t *testing.T) {
	j := newJournal(map[string]shard.ID{testLease: testShard}, "")
	for _, e := range []*harness.Event{
		leaseLine(t, 0, 10, "a_1", 1),
		leaseLine(t, 1*time.Second, 12, "a_1", 1),
		leaseLine(t, 900*time.Millisecond, 11, "a_1", 1), // logged late
		leaseLine(t, 2*time.Second, 13, "", 1),
		leaseLine(t, 2100*time.Millisecond, 14, "b_1", 2),
		stampedLine(t, 8*time.Second, 2100*time.Millisecond, 15, "b_1", 2), // c asks for it
		leaseLine(t, 9*time.Second, 16, "c_1", 3),
		leaseLine(t, 10*time.Second, 17, "c_1", 4),
		leaseLine(t, 11*time.Second, 19, "d_1", 5),
		leaseLine(t, 10900*time.Millisecond, 18, "", 4), // logged late
		leaseLine(t, 12*time.Second, 21, "e_1", 6),
		leaseLine(t, 12500*time.Millisecond, 20, "d_1", 5), // logged late, and no release
	} {
		j.add(e)
	}
	var got []string
	for _, c := range j.changesSince(epoch) {
		got = append(got, fmt.Sprintf("%s>%s lost=%t gap=%v", c.from, c.to, c.lost, c.gap))
	}
	want := []string{
		">a_1 lost=false gap=0s",
		"a_1> lost=false gap=0s",
		">b_1 lost=false gap=100ms",
		"b_1>c_1 lost=true gap=6.9s",
		"c_1>c_1 lost=true gap=1s",
		"c_1>d_1 lost=false gap=100ms",
		"d_1>e_1 lost=true gap=1s",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := len(j.changesSince(epoch.Add(9 * time.Second))); n != 4 {
		t.Errorf("%d changes since the ninth second, want 4", n)
	}
}

func TestJournalCountsWrites(t *testing.T) {
	j := newJournal(map[string]shard.ID{testLease: testShard}, "")
	const agent = "flotilla/v1 flotilla (member=a_1; shard=namespaces/00; term=1)"
	for i := range 10 {
		j.add(line(t, time.Duration(i)*500*time.Millisecond, "create", "pods", "x", "p", "", agent, `{}`))
	}
	j.add(line(t, 5*time.Second, "create", "events", "x", "p", "", agent, `{}`))
	if n := j.writesOf("a", 2); n != 4 {
		t.Errorf("%d writes in the last two whole seconds, want 4", n)
	}
	if n := j.writesEver("a"); n != 10 {
		t.Errorf("%d writes, want 10", n)
	}
	if n := j.writesFor(testShard, 60); n != 10 {
		t.Errorf("%d writes for the shard, want 10", n)
	}
	if mean, median := j.rate(epoch, epoch.Add(4*time.Second)); mean != 2 || median != 2 {
		t.Errorf("rate %v, %d, want 2, 2", mean, median)
	}
}

func TestHeldBy(t *testing.T) {
	leases := []string{testLease}
	fresh := hold{holder: "a_1", renewed: epoch}
	for _, test := range []struct {
		name    string
		holds   map[string]hold
		members map[string]bool
		since   time.Time
		want    string
	}{
		{"held", map[string]hold{testLease: fresh}, map[string]bool{"a": true}, epoch, ""},
		{"no Lease", nil, map[string]bool{"a": true}, epoch, "has no Lease"},
		{"by the dead", map[string]hold{testLease: fresh}, map[string]bool{"b": true}, epoch, `is held by "a_1"`},
		{"free", map[string]hold{testLease: {renewed: epoch}}, map[string]bool{"a": true}, epoch, `is held by ""`},
		{"stale", map[string]hold{testLease: fresh}, map[string]bool{"a": true}, epoch.Add(1), "has not been renewed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := heldBy(leases, test.holds, test.members, test.since)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func canaryLine(t *testing.T, after time.Duration, verb, subresource string, generation, seen int) *harness.Event {
	t.Helper()
	return line(t, after, verb, "replicasets", "x", canaryName, subresource, "any", fmt.Sprintf(
		`{"metadata":{"generation":%d},"status":{"observedGeneration":%d}}`, generation, seen))
}

func TestLatencies(t *testing.T) {
	j := newJournal(nil, "")
	j.phase("kill", epoch.Add(2*time.Second))
	j.phase(calm, epoch.Add(5*time.Second))
	for _, e := range []*harness.Event{
		canaryLine(t, 0, "patch", "", 2, 1),
		canaryLine(t, 10*time.Millisecond, "update", "status", 2, 2),
		canaryLine(t, 1*time.Second, "patch", "", 3, 2), // waits until the fault has begun
		canaryLine(t, 4*time.Second, "patch", "", 4, 2),
		canaryLine(t, 7*time.Second, "update", "status", 4, 4),
		canaryLine(t, 8100*time.Millisecond, "update", "status", 5, 5), // logged before the change it answers
		canaryLine(t, 8*time.Second, "patch", "", 5, 4),
	} {
		j.add(e)
	}
	var got []string
	for _, s := range j.spreads() {
		got = append(got, fmt.Sprint(s.phase, s.n, s.p50, s.worst))
	}
	want := []string{fmt.Sprint(calm, 2, 10*time.Millisecond, 100*time.Millisecond), fmt.Sprint("kill", 2, 3*time.Second, 6*time.Second)}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := j.progressed([]string{"x"}, epoch.Add(8*time.Second)); err != nil {
		t.Error(err)
	}
	if err := j.progressed([]string{"x", "y"}, epoch.Add(8*time.Second)); err == nil || !strings.Contains(err.Error(), "1 of 2 canaries have not moved: [y]") {
		t.Errorf("got %v for a canary that was never changed", err)
	}
}

func TestQuantile(t *testing.T) {
	var sorted []time.Duration
	for i := range 200 {
		sorted = append(sorted, time.Duration(i+1))
	}
	for part, want := range map[float64]time.Duration{0.5: 100, 0.99: 198, 1: 200, 0: 1} {
		if got := quantile(sorted, part); got != want {
			t.Errorf("quantile %v is %d, want %d", part, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing is %d", got)
	}
}

// TestJournalFollowsHeartbeats covers a holder that stays alive by its member's Lease.
func TestJournalFollowsHeartbeats(t *testing.T) {
	j := newJournal(map[string]shard.ID{testLease: testShard}, "")
	beat := func(after, stamp time.Duration, version int, holder string) {
		j.add(line(t, after, "update", "leases", "kube-system", leaserecord.MemberLease(fleetName, "a"), "", "flotilla/v1", fmt.Sprintf(
			`{"metadata":{"resourceVersion":"%d","name":%q},"spec":{"holderIdentity":%q,"renewTime":%q}}`,
			version, leaserecord.MemberLease(fleetName, "a"), holder, epoch.Add(stamp).Format("2006-01-02T15:04:05.000000Z"))))
	}
	renewed := func() time.Duration { return j.snapshot()[testLease].renewed.Sub(epoch) }
	j.add(leaseLine(t, 0, 10, "a_1", 1))
	beat(5*time.Second, 5*time.Second, 11, "a_1")
	if got := renewed(); got != 5*time.Second {
		t.Errorf("the holder's last sign of life came after %v, want 5s: a heartbeat", got)
	}
	beat(8*time.Second, 5*time.Second, 12, "a_1") // the member's state has changed
	beat(20*time.Second, 5*time.Second, 13, "")   // listed as ended
	if got := renewed(); got != 5*time.Second {
		t.Errorf("the holder's last sign of life came after %v, want 5s: the later write was none", got)
	}
	j.add(leaseLine(t, 21*time.Second, 14, "b_1", 2))
	changes := j.changesSince(epoch.Add(time.Second))
	if len(changes) != 1 || !changes[0].lost || changes[0].gap != 16*time.Second {
		t.Errorf("%+v, want one change after 16 s without a sign", changes)
	}
}
