package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/test/harness"
)

// fenceWrite is a write that came through a member's fence.
type fenceWrite struct {
	*harness.Event
	// claim is the claim in the User-Agent.
	claim audit.Identity
}

// fenceLog is what the audit log says about the fence.
type fenceLog struct {
	// writes are those that came through a member's fence, in the order of their answers.
	writes []fenceWrite
	// published is when a write that put a credential on a member's Lease arrived, by
	// incarnation and credential.
	published map[[2]string]time.Time
	// marked is when each incarnation was fenced.
	marked map[string]time.Time
}

func readFenceLog(t *testing.T, path string) *fenceLog {
	t.Helper()
	log := &fenceLog{published: map[[2]string]time.Time{}, marked: map[string]time.Time{}}
	if err := harness.EventsOf(path, log.add); err != nil {
		t.Fatal(err)
	}
	return log
}

func (l *fenceLog) add(e *harness.Event) error {
	if e.Stage != auditv1.StageResponseComplete || e.ObjectRef == nil || e.ResponseStatus == nil {
		return nil
	}
	if e.ObjectRef.Resource == "leases" && e.ResponseStatus.Code < http.StatusBadRequest && leaserecord.IsMemberLease(harness.Fleet, e.ObjectRef.Name) {
		return l.addLease(e)
	}
	id, fenced, err := audit.ParseAgent(e.UserAgent)
	if err != nil || !fenced || e.Verb == "get" || e.Verb == "list" || e.Verb == "watch" {
		return err
	}
	l.writes = append(l.writes, fenceWrite{Event: e, claim: id})
	return nil
}

func (l *fenceLog) addLease(e *harness.Event) error {
	if e.ResponseObject == nil {
		return nil // a read
	}
	var lease coordinationv1.Lease
	if err := e.Answer(&lease); err != nil {
		return err
	}
	record := leaserecord.From(&lease)
	for id := range strings.SplitSeq(record.Annotations[leaserecord.CredentialsAnnotation], ",") {
		// The log stamps an answer after it was sent, when the member may already use the
		// credential. So the request's arrival counts.
		if key := [2]string{record.Holder, id}; l.published[key].IsZero() {
			l.published[key] = e.RequestReceivedTimestamp.Time
		}
	}
	for _, incarnation := range record.FencedIncarnations() {
		if l.marked[incarnation].IsZero() {
			l.marked[incarnation] = e.StageTimestamp.Time
		}
	}
	return nil
}

// judgeFence compares every write of the fleet with what was published and fenced at that time.
// From acts on, the API server is known to act on the mark.
func judgeFence(t *testing.T, log *fenceLog, dead string, acts time.Time) {
	t.Helper()
	marked, ok := log.marked[dead]
	if !ok {
		t.Errorf("%s was never fenced", dead)
	}
	var complaints []string
	terms := map[string]int32{} // the dead member's last terms, by shard
	denied, accepted, refused, members := 0, 0, map[string]int{}, map[string]int{}
	var before time.Time
	credentials := map[string]int{} // writes with a published one, by member
	for _, e := range log.writes {
		members[leaserecord.MemberOf(e.claim.Member)]++
		id := strings.Join(e.User.Extra["authentication.kubernetes.io/credential-id"], " ")
		published, known := log.published[[2]string{e.claim.Member, id}]
		if strings.HasPrefix(id, "JTI=") && known {
			credentials[leaserecord.MemberOf(e.claim.Member)]++
		}
		if strings.HasPrefix(id, "JTI=") && (!known || e.RequestReceivedTimestamp.Time.Before(published)) {
			complaints = append(complaints, fmt.Sprintf("%s: %s %s with a credential that is not on its Lease", e.claim, e.Verb, e.RequestURI))
		}
		if e.claim.Member != dead {
			continue
		}
		terms[e.claim.Shard.String()] = max(terms[e.claim.Shard.String()], e.claim.Term)
		late := !marked.IsZero() && e.RequestReceivedTimestamp.After(marked)
		switch {
		case !late:
			before = e.RequestReceivedTimestamp.Time
		case e.ResponseStatus.Code == http.StatusForbidden:
			denied++
			refused[e.ObjectRef.Resource]++
		case e.ResponseStatus.Code < http.StatusBadRequest:
			accepted++
			if e.RequestReceivedTimestamp.After(acts) {
				complaints = append(complaints, fmt.Sprintf("%s: %s %s was accepted %v after the mark", e.claim, e.Verb, e.RequestURI, e.RequestReceivedTimestamp.Sub(marked)))
			}
		}
	}
	complaints = append(complaints, log.early(dead, terms, marked)...)
	for _, complaint := range complaints[:min(len(complaints), 20)] {
		t.Error(complaint)
	}
	if n := len(complaints); n > 20 {
		t.Errorf("and %d more", n-20)
	}
	if len(terms) == 0 {
		t.Errorf("%s has not written anything, so the test proves nothing", dead)
	}
	for member, writes := range members {
		if credentials[member] < writes/2 {
			t.Errorf("%s has sent %d writes, only %d of them with a published credential: the fence could not refuse the others", member, writes, credentials[member])
		}
	}
	t.Logf("writes by member: %v, with published credentials: %v; credentials published: %d", members, credentials, len(log.published))
	if ok {
		t.Logf("the dead member wrote last %.2f s before it was fenced; after that %d writes were denied (%v), %d accepted",
			marked.Sub(before).Seconds(), denied, refused, accepted)
	}
}

// early returns what others wrote in the dead member's shards, with a later term, before the fence
// had had time to act on the mark.
func (l *fenceLog) early(dead string, terms map[string]int32, marked time.Time) []string {
	var complaints []string
	first := map[string]time.Time{}
	for _, e := range l.writes {
		shard := e.claim.Shard.String()
		if last, was := terms[shard]; !was || e.claim.Member == dead || e.claim.Term <= last {
			continue
		}
		if at, seen := first[shard]; !seen || e.RequestReceivedTimestamp.Time.Before(at) {
			first[shard] = e.RequestReceivedTimestamp.Time
		}
	}
	if len(first) == 0 {
		complaints = append(complaints, "nobody has written in a shard of "+dead+" after it: that nobody was early proves nothing")
	}
	for _, shard := range slices.Sorted(maps.Keys(first)) {
		if since := first[shard].Sub(marked); !marked.IsZero() && since < fencedDelay {
			complaints = append(complaints, fmt.Sprintf("%s was written by its next holder %v after %s was fenced, want %v or more", shard, since, dead, fencedDelay))
		}
	}
	return complaints
}
