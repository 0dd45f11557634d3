package audit

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

const (
	scheduledAnnotation = "batch.kubernetes.io/cronjob-scheduled-timestamp"
	templateHashLabel   = "pod-template-hash"
	serviceLabel        = "kubernetes.io/service-name"
	managerLabel        = "endpointslice.kubernetes.io/managed-by"
)

// siblingKey names something of which an owner wants at most one: a ReplicaSet for a template, a
// Job for a time. There may be several EndpointSlices of one form, but not with the same endpoint.
type siblingKey struct {
	resource, owner string
	form            string // the time of a Job
	print           uint64 // of the template, or of the Service, address type and ports
}

// sibling is a creation of such an object, by anybody.
type sibling struct {
	event event
	by    *Identity
	at    moment
	thing *thing
	uid   string
}

// cronState is a CronJob after one write.
type cronState struct {
	moment
	last time.Time // for which it has made a Job
	by   Identity
}

// endpoints is what an EndpointSlice had.
type endpoints struct {
	states []endpointsState
}

type endpointsState struct {
	moment
	all []uint64 // fingerprints, in order; a slice without endpoints has the one of nothing
}

// writeSibling keeps what the rules about such objects need.
func (w *world) writeSibling(e event, by *Identity, t *thing, o object, m moment, isNew bool) {
	if !o.whole() {
		return
	}
	key := siblingKey{resource: t.resource, owner: w.intern(o.Metadata.controller())}
	switch t.group + "/" + t.resource {
	case "apps/replicasets":
		if isNew {
			key.print = templatePrint(o)
		}
	case "batch/jobs":
		key.form = w.intern(o.Metadata.Annotations[scheduledAnnotation])
		isNew = isNew && key.form != ""
	case "batch/cronjobs":
		w.writeCronJob(o, by, m)
		return
	case "discovery.k8s.io/endpointslices":
		key.print = w.writeSlice(o, m)
	default:
		return
	}
	if isNew && key.owner != "" {
		w.siblings[key] = append(w.siblings[key], sibling{event: e.lean(), by: by, at: m, thing: t, uid: o.Metadata.UID})
	}
}

// templatePrint is the same for all ReplicaSets that a Deployment would take for one.
func templatePrint(o object) uint64 {
	var spec struct {
		Template struct {
			Metadata metadata       `json:"metadata"`
			Spec     map[string]any `json:"spec"`
		} `json:"template"`
	}
	decode(orEmpty(o.Spec), &spec)
	delete(spec.Template.Metadata.Labels, templateHashLabel)
	return fingerprint(spec.Template)
}

func (w *world) writeCronJob(o object, by *Identity, m moment) {
	var status struct {
		Last time.Time `json:"lastScheduleTime"`
	}
	decode(orEmpty(o.Status), &status)
	s := cronState{moment: m, last: status.Last}
	if by != nil {
		s.by = *by
	}
	w.crons[o.Metadata.UID] = append(w.crons[o.Metadata.UID], s)
}

// writeSlice keeps the endpoints, and returns the fingerprint of everything else that distinguishes
// slices.
func (w *world) writeSlice(o object, m moment) uint64 {
	s := w.slices[o.Metadata.UID]
	if s == nil {
		s = &endpoints{}
		w.slices[o.Metadata.UID] = s
	}
	state := endpointsState{moment: m}
	for _, each := range o.Endpoints {
		state.all = append(state.all, fingerprint(each))
	}
	if len(state.all) == 0 {
		state.all = []uint64{fingerprint()}
	}
	slices.Sort(state.all)
	s.states = append(s.states, state)
	return fingerprint(o.Metadata.Labels[serviceLabel], o.Metadata.Labels[managerLabel], o.AddressType, o.Ports)
}

// at returns the endpoints that a slice had at a moment; none if they are unknown.
func (s *endpoints) at(m moment) (last endpointsState, known bool) {
	for _, state := range s.states {
		if state.version <= m.version {
			last, known = state, true
		}
	}
	return last, known
}

func (w *world) sortSiblings() {
	w.sortVolumes()
	for _, s := range w.slices {
		slices.SortStableFunc(s.states, func(a, b endpointsState) int { return cmp.Compare(a.version, b.version) })
	}
	for _, states := range w.crons {
		slices.SortStableFunc(states, func(a, b cronState) int { return cmp.Compare(a.version, b.version) })
	}
	for _, all := range w.siblings {
		slices.SortStableFunc(all, func(a, b sibling) int { return cmp.Compare(a.at.version, b.at.version) })
	}
}

// judgeSiblings convicts the fleet of creating an object although there was one like it.
func (b *bench) judgeSiblings() {
	for key, all := range b.siblings {
		for i, s := range all {
			if s.by == nil {
				continue
			}
			switch key.resource {
			case "replicasets":
				b.judged.ReplicaSets++
			case "jobs":
				b.judged.Jobs++
				b.judgeJob(key, all[:i], s)
				continue
			default:
				b.judged.EndpointSlices++
			}
			for _, other := range all[:i] {
				if b.doubles(key, other, s) {
					kind := DuplicateReplicaSet
					if key.resource != "replicasets" {
						kind = DuplicateSlice
					}
					b.accuse(s.event, other.at, kind, "%s: made %s, and there was %s of the same owner, with the same in it", s.by, s.thing.title(), other.thing.title())
					break
				}
			}
		}
	}
}

// doubles reports whether an object of the same owner surely existed when one like it was made.
func (b *bench) doubles(key siblingKey, other, made sibling) bool {
	switch {
	case !other.at.before(made.at), endedMaybeBefore(other.thing.ended, made.at), !ownedBy(other.thing, key.owner):
		return false
	case key.resource == "replicasets":
		return true
	}
	had, known := b.slices[other.uid].at(made.at)
	has, _ := b.slices[made.uid].at(made.at)
	if !known || slices.ContainsFunc(b.vague[other.thing.place], func(u vagueWrite) bool { return u.maybeBefore(made.at) && !u.settledBy(had.received) }) {
		b.skip("EndpointSlice created: what another had is not known")
		return false
	}
	return slices.ContainsFunc(has.all, func(each uint64) bool { return slices.Contains(had.all, each) })
}

// ownedBy reports whether a thing has the owner, by the last known state.
func ownedBy(t *thing, uid string) bool {
	return slices.ContainsFunc(t.refs, func(r reference) bool { return r.UID == uid && r.Controller })
}

// judgeJob convicts a second Job of a CronJob for one time, if the CronJob said by then that it had
// made the first. Names keep two from existing at once: the first has been deleted. A cache may
// lack what the same claim wrote a moment before.
func (b *bench) judgeJob(key siblingKey, before []sibling, s sibling) {
	due, err := time.Parse(time.RFC3339, key.form)
	if err != nil || len(before) == 0 {
		return
	}
	var last cronState
	for _, state := range b.crons[key.owner] {
		if state.before(s.at) && !(state.by == *s.by && state.answered.After(s.at.received.Add(-lag))) {
			last = state
		}
	}
	switch {
	case last.version == 0:
		b.skip("Job created again: what its CronJob said is not in the log")
	case last.last.Before(due):
		b.skip("Job created again: its CronJob did not say that there had been one")
	default:
		b.accuse(s.event, last.moment, DuplicateJob, "%s: made %s for %s again, which its CronJob had a Job for by %s", s.by, s.thing.title(), key.form, stamp(last.answered))
	}
}

// endpoint is what distinguishes an endpoint from others.
type endpoint struct {
	Addresses []string `json:"addresses"`
	Hostname  string   `json:"hostname"`
	Target    struct {
		UID string `json:"uid"`
	} `json:"targetRef"`
}

// slice is what only EndpointSlices have.
type slice struct {
	AddressType string          `json:"addressType"`
	Endpoints   []endpoint      `json:"endpoints"`
	Ports       json.RawMessage `json:"ports"`
}
