package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/test/audit"
)

// fenceEvent is what is read of an audit event.
type fenceEvent struct {
	Stage, Verb, RequestURI, UserAgent string
	User                               struct {
		Extra map[string][]string
	}
	ObjectRef *struct {
		Resource, Subresource, Name string
	}
	ResponseStatus *struct {
		Code   int
		Reason string
	}
	ResponseObject json.RawMessage
	Received       metav1.MicroTime `json:"requestReceivedTimestamp"`
	Answered       metav1.MicroTime `json:"stageTimestamp"`

	// claim is what the User-Agent says.
	claim audit.Identity
}

// fenceLog is what the audit log says of the fence.
type fenceLog struct {
	// writes are those that came through a member's fence, in the order in which they were answered.
	writes []fenceEvent
	// published is when a write that put a credential on a member's Lease was answered, by incarnation and credential.
	published map[[2]string]time.Time
	// marked is when each incarnation was fenced.
	marked map[string]time.Time
}

func readFenceLog(t *testing.T, path string) *fenceLog {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	log := &fenceLog{published: map[[2]string]time.Time{}, marked: map[string]time.Time{}}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return log // the server may be writing a line that nobody waits for
		}
		if err != nil {
			t.Fatal(err)
		}
		var e fenceEvent
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		if err := log.add(e); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *fenceLog) add(e fenceEvent) error {
	if e.Stage != "ResponseComplete" || e.ObjectRef == nil || e.ResponseStatus == nil {
		return nil
	}
	if e.ObjectRef.Resource == "leases" && e.ResponseStatus.Code < http.StatusBadRequest && strings.HasPrefix(e.ObjectRef.Name, election.MemberLease(fleetName, "")) {
		return l.addLease(e)
	}
	id, fenced, err := audit.ParseAgent(e.UserAgent)
	if err != nil || !fenced || e.Verb == "get" || e.Verb == "list" || e.Verb == "watch" {
		return err
	}
	e.claim = id
	l.writes = append(l.writes, e)
	return nil
}

func (l *fenceLog) addLease(e fenceEvent) error {
	if len(e.ResponseObject) == 0 {
		return nil // a read
	}
	var lease coordinationv1.Lease
	if err := json.Unmarshal(e.ResponseObject, &lease); err != nil {
		return err
	}
	record := election.RecordFrom(&lease)
	for id := range strings.SplitSeq(record.Annotations[election.CredentialsAnnotation], ",") {
		// The answer was sent at that time, and whoever has published may go on then.
		if key := [2]string{record.Holder, id}; l.published[key].IsZero() {
			l.published[key] = e.Received.Time
		}
	}
	for _, incarnation := range record.FencedIncarnations() {
		if l.marked[incarnation].IsZero() {
			l.marked[incarnation] = e.Answered.Time
		}
	}
	return nil
}

// judgeFence holds every write of the fleet against what was published and fenced by then. The API server is known to act
// on the mark from a time on.
func judgeFence(t *testing.T, log *fenceLog, dead string, acts time.Time) {
	t.Helper()
	marked, ok := log.marked[dead]
	if !ok {
		t.Errorf("%s was never fenced", dead)
	}
	var complaints []string
	terms := map[string]int32{} // the dead member's last, by shard
	denied, accepted, refused, members := 0, 0, map[string]int{}, map[string]int{}
	var before fenceEvent
	for _, e := range log.writes {
		members[election.MemberOf(e.claim.Member)]++
		id := strings.Join(e.User.Extra["authentication.kubernetes.io/credential-id"], " ")
		published, known := log.published[[2]string{e.claim.Member, id}]
		if strings.HasPrefix(id, "JTI=") && (!known || e.Received.Time.Before(published)) {
			complaints = append(complaints, fmt.Sprintf("%s: %s %s with a credential that is not on its Lease", e.claim, e.Verb, e.RequestURI))
		}
		if e.claim.Member != dead {
			continue
		}
		terms[e.claim.Shard.String()] = max(terms[e.claim.Shard.String()], e.claim.Term)
		late := !marked.IsZero() && e.Received.After(marked)
		switch {
		case !late:
			before = e
		case e.ResponseStatus.Code == http.StatusForbidden:
			denied++
			refused[e.ObjectRef.Resource]++
		case e.ResponseStatus.Code < http.StatusBadRequest:
			accepted++
			if e.Received.After(acts) {
				complaints = append(complaints, fmt.Sprintf("%s: %s %s was accepted %v after the mark", e.claim, e.Verb, e.RequestURI, e.Received.Sub(marked)))
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
		t.Errorf("%s has not written anything, so nothing was tried", dead)
	}
	t.Logf("writes by member: %v; credentials published: %d", members, len(log.published))
	if ok {
		t.Logf("the dead member wrote last %.2f s before it was fenced; after that %d writes were denied (%v), %d accepted",
			marked.Sub(before.Received.Time).Seconds(), denied, refused, accepted)
	}
}

// early returns what others wrote in the dead member's shards, with a later term, before it had been fenced for as long as
// the fence takes.
func (l *fenceLog) early(dead string, terms map[string]int32, marked time.Time) []string {
	var complaints []string
	first := map[string]time.Time{}
	for _, e := range l.writes {
		shard := e.claim.Shard.String()
		if last, was := terms[shard]; !was || e.claim.Member == dead || e.claim.Term <= last {
			continue
		}
		if at, seen := first[shard]; !seen || e.Received.Time.Before(at) {
			first[shard] = e.Received.Time
		}
	}
	for _, shard := range slices.Sorted(maps.Keys(first)) {
		if since := first[shard].Sub(marked); !marked.IsZero() && since < fencedDelay {
			complaints = append(complaints, fmt.Sprintf("%s was written by its next holder %v after %s was fenced, want %v or more", shard, since, dead, fencedDelay))
		}
	}
	return complaints
}
