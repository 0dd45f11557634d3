package sim

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// resource is what all work writes.
const resource = "pods"

// longestWire limits how long a write is in transit. It is shorter than a lease duration by any
// clock.
const longestWire = 3 * time.Second

// api is the API server: it accepts writes and records them.
type api struct {
	version int
	written map[part][]written
}

// written is a write that was accepted.
type written struct {
	process *process
	// claim is the claim under which the write was sent; nil if there was none.
	claim    *claim
	version  int
	sent, at time.Time
	// late is set if the claim had ended when the write arrived.
	late bool
}

func (a *api) init() { a.written = map[part][]written{} }

// versionAt returns the version of the last write accepted by time t to anything that p covers.
func (sim *simulation) versionAt(p part, t time.Time) int {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	last := 0
	for _, overlapping := range sim.overlappingLocked(p) {
		for _, write := range slices.Backward(sim.written[overlapping]) {
			if !write.at.After(t) {
				last = max(last, write.version)
				break
			}
		}
	}
	return last
}

// wire is a process's connection to the API server, below the fence.
type wire struct {
	process *process
	shard   shard.ID
	part    part
}

// RoundTrip implements http.RoundTripper. The request is sent when it is called. The server carries
// it out whether or not the caller waits for the answer.
func (r *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	sim, p, sent := r.process.sim, r.process, time.Now()
	held := sim.judgeSent(p, r.shard, termOf(req))
	out, back := p.upTo(20*time.Millisecond), p.upTo(20*time.Millisecond)
	if p.chance(0.02) {
		out = p.upTo(longestWire)
	}
	if *mistake == "slow_wire" {
		out += longestWire
	}
	lost, refused, mute := p.fails(), p.fails(), p.fails()
	answers := make(chan int, 1)
	sim.server.Go(func() {
		if lost {
			return
		}
		<-time.After(out)
		version := sim.accept(r.part, written{process: p, claim: held, sent: sent})
		<-time.After(back)
		if !mute {
			answers <- version
		}
	})
	select {
	case version := <-answers:
		if err := p.barrier.pass(); err != nil {
			return nil, err
		}
		switch {
		case version == 0:
			return answer(http.StatusForbidden, `{"kind":"Status"}`), nil
		case refused:
			return answer(http.StatusGatewayTimeout, `{"kind":"Status"}`), nil
		}
		return answer(http.StatusOK, fmt.Sprintf(`{"kind":"Pod","metadata":{"resourceVersion":"%d"}}`, version)), nil
	case <-req.Context().Done():
		if err := p.barrier.pass(); err != nil {
			return nil, err
		}
		return nil, context.Cause(req.Context())
	}
}

func answer(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}
}

// termOf returns the term that the fence wrote into the request.
func termOf(req *http.Request) int32 {
	_, after, _ := strings.Cut(req.Header.Get("User-Agent"), "term=")
	digits, _, _ := strings.Cut(after, ")")
	term, err := strconv.ParseInt(digits, 10, 32)
	if err != nil {
		return -1
	}
	return int32(term)
}

// accept records a write and returns its version, or 0 if the API server refuses it.
func (sim *simulation) accept(p part, write written) int {
	refused := sim.enforced && sim.admission.refuses(write.process.id())
	sim.mu.Lock()
	defer sim.mu.Unlock()
	if refused {
		sim.countLocked(serverRefusals)
		return 0
	}
	sim.version++
	write.version, write.at = sim.version, time.Now()
	write.late = write.claim == nil || !write.claim.valid()
	sim.countLocked(writes)
	if write.late {
		sim.countLocked(lateWrites)
	}
	sim.written[p] = append(sim.written[p], write)
	if took := write.at.Sub(write.sent); took > longestWire {
		sim.failLockedf(wireTime, "a write of %s to %s was accepted %v after it was sent", write.process.name(), p.id, took)
	}
	sim.judgeAcceptedLocked(p, write)
	return sim.version
}
