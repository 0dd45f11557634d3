package audit

import (
	"cmp"
	"slices"
	"time"
)

// pod is what is kept of a pod.
type pod struct {
	*thing
	owned []ownership
	node  string // empty while it has none
	// shown is when an answer first had it.
	shown time.Time
}

// ownership is who controls a pod from a version on; nobody if the UID is empty.
type ownership struct {
	version uint64
	owner   string
}

func (p *pod) sort() {
	slices.SortStableFunc(p.owned, func(a, b ownership) int { return cmp.Compare(a.version, b.version) })
}

// owner returns the UID of the pod's controller at a version.
func (p *pod) owner(version uint64) string {
	i, found := slices.BinarySearchFunc(p.owned, version, func(o ownership, v uint64) int { return cmp.Compare(o.version, v) })
	if !found {
		i--
	}
	if i < 0 {
		return ""
	}
	return p.owned[i].owner
}

// live reports whether the pod surely was live when m took effect.
func (p *pod) live(m moment) bool {
	if !p.born.before(m) {
		return false
	}
	return !endedMaybeBefore(p.ended, m)
}

// died returns the latest time at which the pod stopped being live, and whether it is known to have
// died at all.
func (p *pod) died() (at time.Time, ended bool) {
	for _, e := range p.ended {
		if e.sure && (!ended || e.answered.Before(at)) {
			at, ended = e.answered, true
		}
	}
	return at, ended
}

// podState is what only pods have.
type podState struct {
	node, phase string
	claims      bool
}

func readPodState(o object) podState {
	var spec struct {
		NodeName string     `json:"nodeName"`
		Claims   []struct{} `json:"resourceClaims"`
	}
	var status struct {
		Phase string `json:"phase"`
	}
	decode(orEmpty(o.Spec), &spec)
	if o.Kind != "Status" {
		decode(orEmpty(o.Status), &status)
	}
	return podState{node: spec.NodeName, phase: status.Phase, claims: len(spec.Claims) > 0}
}

func (s podState) finished() bool { return s.phase == "Succeeded" || s.phase == "Failed" }
