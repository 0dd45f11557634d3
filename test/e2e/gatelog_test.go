package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// gateEvent is what is read of an event of the audit log.
type gateEvent struct {
	RequestURI string `json:"requestURI"`
	Verb       string `json:"verb"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus *struct {
		Code int32 `json:"code"`
	} `json:"responseStatus"`
	ResponseObject json.RawMessage  `json:"responseObject"`
	Received       metav1.MicroTime `json:"requestReceivedTimestamp"`
	Answered       metav1.MicroTime `json:"stageTimestamp"`
	Stage          string           `json:"stage"`
}

// managerUser is the identity of the process itself: for its election, and for the service accounts of its controllers.
const managerUser = "system:kube-controller-manager"

// apiServerUser is who names the holder of a Lease in a coordinated election.
const apiServerUser = "system:apiserver"

// process returns the name of the binary, with which client-go begins the User-Agent.
func (e gateEvent) process() string {
	name, _, _ := strings.Cut(e.UserAgent, "/")
	return name
}

func (e gateEvent) accepted() bool {
	return e.Stage == "ResponseComplete" && e.ResponseStatus != nil && e.ResponseStatus.Code < 300 && e.ObjectRef != nil
}

func (e gateEvent) mutating() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, e.Verb) && !strings.Contains(e.RequestURI, "dryRun=")
}

// ofController tells whether a controller sent it: neither the process for its election or for the identities of its
// controllers, nor a question, nor an Event, which is recorded late.
func (e gateEvent) ofController() bool {
	r := e.ObjectRef
	switch {
	case !e.mutating(), r.Resource == "events", r.APIGroup == "authentication.k8s.io", r.APIGroup == "authorization.k8s.io", r.Resource == "serviceaccounts" && r.Subresource == "token":
		return false
	case e.User.Username == managerUser:
		return r.Resource != "leases" && r.Resource != "leasecandidates" && r.Resource != "serviceaccounts"
	default:
		return true
	}
}

func (e gateEvent) String() string {
	r := e.ObjectRef
	return fmt.Sprintf("%s %s %s/%s by %s as %s at %s", e.Verb, r.Resource, r.Namespace, r.Name, e.process(), e.User.Username, e.Received.Format("15:04:05.000"))
}

// gateState is what one write made of the Lease. It took effect between received and answered.
type gateState struct {
	version            uint64
	holder             string
	process            string // that holds; empty if nobody does
	received, answered time.Time
	duration           time.Duration
}

// gateTerm is a time in which the Lease named the same holder. A term that has not ended has no end.
type gateTerm struct {
	process     string
	holder      string
	first, last gateState
	end         gateState
}

func (t gateTerm) ended() bool { return t.end.version > 0 }

// released tells whether the holder cleared the Lease at the end, rather than let it expire.
func (t gateTerm) released() bool { return t.ended() && t.end.holder == "" }

// gateWrite is one write of a controller.
type gateWrite struct {
	gateEvent
	process string
	version uint64 // 0 if the answer has none
}

// gateFault is a write of a process that the Lease did not name.
type gateFault struct {
	write gateWrite
	late  time.Duration
	// holder is the process that the Lease named when it took effect; empty for none.
	holder string
}

func (f gateFault) String() string {
	return fmt.Sprintf("%s, %v after its term had ended; the Lease named %q", f.write.gateEvent, f.late.Round(time.Millisecond), f.holder)
}

type answeredVersion struct {
	answered time.Time
	highest  uint64
}

// gateLog is what an audit log says of one Lease and of those who may write under it.
type gateLog struct {
	states []gateState
	terms  []gateTerm
	writes []gateWrite
	// versions are the highest that were answered up to a time, by time.
	versions []answeredVersion
	// processes whose writes count: those that have ever held the Lease.
	judged map[string]bool
}

// readGateLog reads who held the Lease of kube-system and what the controllers of the processes that ever did have written. counts
// tells which of their writes need the Lease.
func readGateLog(log io.Reader, lease string, counts func(gateEvent) bool) (*gateLog, error) {
	g := &gateLog{judged: map[string]bool{}}
	processes := map[string]string{} // by holder
	reader := bufio.NewReaderSize(log, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // A line without its end is being written.
		}
		if err != nil {
			return nil, err
		}
		var e gateEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("audit log: %w", err)
		}
		if !e.accepted() || !e.mutating() {
			continue
		}
		if v := e.version(); v > 0 {
			g.versions = append(g.versions, answeredVersion{e.Answered.Time, v})
		}
		if r := e.ObjectRef; r.Resource == "leases" && r.Namespace == metav1.NamespaceSystem && r.Name == lease {
			if err := g.addState(e, processes); err != nil {
				return nil, err
			}
		} else if e.ofController() && counts(e) {
			w := gateWrite{gateEvent: e, process: e.process(), version: e.version()}
			w.ResponseObject = nil
			g.writes = append(g.writes, w)
		}
	}
	g.finish(processes)
	return g, nil
}

// version returns the resourceVersion that the write made; 0 if the answer has none.
func (e gateEvent) version() uint64 {
	var object metav1.PartialObjectMetadata
	if e.Verb == "deletecollection" || e.ResponseObject == nil || json.Unmarshal(e.ResponseObject, &object) != nil || object.Kind == "Status" {
		return 0
	}
	version, _ := strconv.ParseUint(object.ResourceVersion, 10, 64)
	return version
}

func (g *gateLog) addState(e gateEvent, processes map[string]string) error {
	var lease coordinationv1.Lease
	if err := json.Unmarshal(e.ResponseObject, &lease); err != nil {
		return fmt.Errorf("%s: %w", e, err)
	}
	s := gateState{version: e.version(), holder: ptr.Deref(lease.Spec.HolderIdentity, ""), received: e.Received.Time, answered: e.Answered.Time}
	s.duration = time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	if e.Verb == "delete" {
		s.holder = ""
	}
	if s.holder != "" && processes[s.holder] == "" && e.User.Username != apiServerUser {
		processes[s.holder] = e.process() // Who writes a name first has it, unless it chooses others.
	}
	g.states = append(g.states, s)
	return nil
}

func (g *gateLog) finish(processes map[string]string) {
	slices.SortFunc(g.versions, func(a, b answeredVersion) int { return a.answered.Compare(b.answered) })
	for i := 1; i < len(g.versions); i++ {
		g.versions[i].highest = max(g.versions[i].highest, g.versions[i-1].highest)
	}
	slices.SortStableFunc(g.states, func(a, b gateState) int { return cmp.Compare(a.version, b.version) })
	for i := range g.states {
		s := &g.states[i]
		s.process = processes[s.holder]
		last := len(g.terms) - 1
		open := last >= 0 && !g.terms[last].ended()
		if open && g.terms[last].holder == s.holder {
			g.terms[last].last = *s
			continue
		}
		if open {
			g.terms[last].end = *s
		}
		if s.holder != "" {
			g.judged[s.process] = true
			g.terms = append(g.terms, gateTerm{process: s.process, holder: s.holder, first: *s, last: *s})
		}
	}
	g.writes = slices.DeleteFunc(g.writes, func(w gateWrite) bool { return !g.judged[w.process] })
}

// faults returns the writes that did not take effect while the Lease named their process. Versions decide; where the answer has
// none, or an old one because the write changed nothing, times do, in the writer's favour.
func (g *gateLog) faults() []gateFault {
	var faults []gateFault
	for _, w := range g.writes {
		if !slices.ContainsFunc(g.terms, func(t gateTerm) bool { return t.process == w.process && g.covers(t, w) }) {
			faults = append(faults, gateFault{write: w, late: g.late(w), holder: g.at(w).process})
		}
	}
	return faults
}

// covers tells whether the write may have taken effect within the term.
func (g *gateLog) covers(t gateTerm, w gateWrite) bool {
	if g.isNew(w) {
		return t.first.version < w.version && (!t.ended() || w.version < t.end.version)
	}
	return !w.Answered.Time.Before(t.first.received) && (!t.ended() || !w.Received.After(t.end.answered))
}

// isNew tells whether the answer's version is the write's own: a write that changes nothing is answered with that of the last change.
func (g *gateLog) isNew(w gateWrite) bool {
	if w.version == 0 {
		return false
	}
	i, _ := slices.BinarySearchFunc(g.versions, w.Received.Time, func(v answeredVersion, t time.Time) int { return v.answered.Compare(t) })
	return i == 0 || g.versions[i-1].highest < w.version
}

// never is how late a write is whose process had had no term.
const never = time.Duration(math.MaxInt64)

// succeeded tells whether the write arrived after the first write of somebody who held the Lease after its process did.
func (g *gateLog) succeeded(w gateWrite) bool {
	ended := w.Received.Add(-g.late(w))
	return slices.ContainsFunc(g.terms, func(t gateTerm) bool {
		first := g.firstWrite(t)
		return t.process != w.process && !t.first.answered.Before(ended) && !first.IsZero() && first.Before(w.Received.Time)
	})
}

// late returns how long after the end of its process's last term before it the write arrived: negative if it was on the wire by then.
func (g *gateLog) late(w gateWrite) time.Duration {
	late := never
	for _, t := range g.terms {
		if t.process == w.process && t.ended() && !t.first.received.After(w.Answered.Time) {
			late = w.Received.Sub(t.end.answered)
		}
	}
	return late
}

// at returns the state of the Lease when the write took effect.
func (g *gateLog) at(w gateWrite) gateState {
	var state gateState
	isNew := g.isNew(w)
	for _, s := range g.states {
		if isNew && s.version > w.version || !isNew && s.answered.After(w.Received.Time) {
			break
		}
		state = s
	}
	return state
}

// move is one passage of the Lease from one process to another, or to another term of the same.
type move struct {
	from, to string
	released bool
	// early tells whether the Lease was neither released nor had stood still for its duration.
	early bool
	// lease is from the release, or from the last renewal of who let it expire, to the acquisition: answer to answer.
	lease time.Duration
	// writes is from the last write of the one to the first write of the other; zero if either made none. after is the same from
	// where lease begins.
	writes, after time.Duration
}

func (m move) String() string {
	how := "released"
	if !m.released {
		how = "expired"
	}
	return fmt.Sprintf("%-10s -> %-10s %-8s  Lease free %8v, first write %8v after that, writes apart %8v",
		m.from, m.to, how, m.lease.Round(time.Millisecond), m.after.Round(time.Millisecond), m.writes.Round(time.Millisecond))
}

// moves returns the passages between terms in order.
func (g *gateLog) moves() []move {
	var moves []move
	for i := 1; i < len(g.terms); i++ {
		from, to := g.terms[i-1], g.terms[i]
		free := from.end
		if !from.released() {
			free = from.last
		}
		m := move{from: from.process, to: to.process, released: from.released(), lease: to.first.answered.Sub(free.answered)}
		m.early = !m.released && to.first.answered.Sub(free.received) < free.duration
		last, first := g.lastWrite(from), g.firstWrite(to)
		if !first.IsZero() {
			m.after = first.Sub(free.answered)
		}
		if !first.IsZero() && !last.IsZero() {
			m.writes = first.Sub(last)
		}
		moves = append(moves, m)
	}
	return moves
}

// lastWrite returns when the last write of a term's process that arrived before the term's end was answered.
func (g *gateLog) lastWrite(t gateTerm) time.Time {
	var last time.Time
	for _, w := range g.writes {
		if w.process == t.process && !w.Received.Time.After(t.end.answered) && w.Answered.After(last) {
			last = w.Answered.Time
		}
	}
	return last
}

// firstWrite returns when the first write of a term's process that arrived after the term's beginning was answered.
func (g *gateLog) firstWrite(t gateTerm) time.Time {
	var first time.Time
	for _, w := range g.writes {
		if w.process != t.process || w.Received.Time.Before(t.first.received) || t.ended() && w.Received.After(t.end.answered) {
			continue
		}
		if first.IsZero() || w.Answered.Time.Before(first) {
			first = w.Answered.Time
		}
	}
	return first
}

// gateLogOf reads the log of a control plane.
func gateLogOf(t *testing.T, plane *controlplane.ControlPlane, lease string, counts func(gateEvent) bool) *gateLog {
	t.Helper()
	log, err := os.ReadFile(plane.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	g, err := readGateLog(bytes.NewReader(log), lease, counts)
	if err != nil {
		t.Fatal(err)
	}
	return g
}
