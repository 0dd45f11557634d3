package audit

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"k8s.io/utils/ptr"
)

// Where a DaemonSet counts the changes of its pods' template, and how pods name theirs.
const (
	templateGenerationAnnotation = "deprecated.daemonset.template.generation"
	templateGenerationLabel      = "pod-template-generation"
	revisionLabel                = "controller-revision-hash"
)

// ownerState is an object that owns pods after one write.
type ownerState struct {
	moment
	// generation is 0 if the answer has none, and is filled in from the state before.
	generation int64
	// observed is the generation that the controller said it has seen; 0 if the kind does not say.
	observed int64
	// desired is the number of pods asked for; start the first ordinal of a StatefulSet.
	desired, start int32
	// revision is the StatefulSet's update revision, template the DaemonSet's template generation.
	revision, template string
	deleting           bool
	// count is the number of pods that its controller said it had; -1 if this is no write of the
	// status.
	count int32
	// scaled is set for answers with only the number of pods, bare for those without even that;
	// whole for others.
	scaled, bare, whole bool
}

// owner is a ReplicaSet, ReplicationController, StatefulSet, DaemonSet or Job.
type owner struct {
	*thing
	states []ownerState
	pods   []*pod // that it ever owned
	// creates are the pods created for it, by version.
	creates []moment
}

// ownsPods reports whether a resource is one whose pods are judged.
func ownsPods(group, resource string) bool {
	switch resource {
	case "replicasets", "statefulsets", "daemonsets":
		return group == "apps"
	case "jobs":
		return group == "batch"
	case "replicationcontrollers":
		return group == ""
	default:
		return false
	}
}

func readOwnerState(o object, resource, subresource string, at moment) ownerState {
	s := ownerState{
		moment: at, count: -1, generation: o.Metadata.Generation, deleting: o.Metadata.DeletionTimestamp != "",
		template: o.Metadata.Annotations[templateGenerationAnnotation],
	}
	var spec struct {
		Replicas    *int32 `json:"replicas"`
		Parallelism *int32 `json:"parallelism"`
		Completions *int32 `json:"completions"`
		Ordinals    struct {
			Start int32 `json:"start"`
		} `json:"ordinals"`
	}
	switch {
	case o.Kind == "Scale":
		s.scaled, s.generation = true, 0
	case !o.whole():
		s.bare = true
		return s
	}
	s.whole = !s.scaled
	decode(orEmpty(o.Spec), &spec)
	if resource == "jobs" {
		s.desired = ptr.Deref(spec.Parallelism, 1)
		if spec.Completions != nil {
			s.desired = min(s.desired, *spec.Completions)
		}
	} else {
		s.desired = ptr.Deref(spec.Replicas, 1)
		if s.scaled {
			s.desired = ptr.Deref(spec.Replicas, 0) // a Scale leaves zero out
		}
	}
	s.start = spec.Ordinals.Start
	var status struct {
		Observed int64  `json:"observedGeneration"`
		Revision string `json:"updateRevision"`
		Replicas int32  `json:"replicas"`
	}
	decode(orEmpty(o.Status), &status)
	s.observed, s.revision = status.Observed, status.Revision
	if subresource == "status" {
		s.count = status.Replicas
	}
	return s
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("{}")
	}
	return raw
}

// sort puts the states in order and completes those whose answers did not have everything.
func (o *owner) sort() {
	slices.SortStableFunc(o.states, func(a, b ownerState) int { return cmp.Compare(a.version, b.version) })
	o.states = slices.CompactFunc(o.states, func(a, b ownerState) bool { return a.version == b.version && b.bare == a.bare })
	for i := range o.states {
		s := &o.states[i]
		if i == 0 || !s.bare && !s.scaled {
			continue
		}
		before := o.states[i-1]
		desired := s.desired
		if s.bare {
			desired = before.desired
		}
		generation := cmp.Or(s.generation, before.generation)
		if s.scaled && desired != before.desired {
			generation = before.generation + 1
		}
		complete := before
		complete.moment, complete.desired, complete.generation = s.moment, desired, generation
		complete.deleting, complete.whole, complete.count = before.deleting || s.deleting, false, -1
		*s = complete
	}
	slices.SortStableFunc(o.creates, func(a, b moment) int { return cmp.Compare(a.version, b.version) })
}

// at returns the number of the state in force at a version, or -1.
func (o *owner) at(version uint64) int {
	i, found := slices.BinarySearchFunc(o.states, version, func(s ownerState, v uint64) int { return cmp.Compare(s.version, v) })
	if found {
		return i
	}
	return i - 1
}

// since returns the number of the state in force at a time before state i, or 0.
func (o *owner) since(i int, t time.Time) int {
	for i > 0 && !o.states[i].answered.Before(t) {
		i--
	}
	return max(i, 0)
}

// blurred reports whether a write of the owner with an unknown outcome may have changed what was in
// force from state first on: a write whose outcome no whole state shows.
func (o *owner) blurred(vague []vagueWrite, first int, m moment) bool {
	return slices.ContainsFunc(vague, func(u vagueWrite) bool {
		return u.maybeBefore(m) && !slices.ContainsFunc(o.states[:first+1], func(s ownerState) bool { return s.whole && u.settledBy(s.received) })
	})
}

// hole reports whether the log lacks a write that may have changed what was in force from state
// first on: by the next state's generation there was one. A server that loses its power loses the
// end of its log.
func (o *owner) hole(first int, m moment) bool {
	for i := first; i+1 < len(o.states) && o.states[i].version < m.version; i++ {
		next, most := o.states[i+1], o.states[i].generation
		if next.count < 0 {
			most++ // a write of the status changes no generation
		}
		if next.whole && o.states[i].generation > 0 && next.generation > most {
			return true
		}
	}
	return false
}

// counted returns the oldest time of the cache by which the controller last wrote, up to state i,
// that it had no pods but those in the log; zero if it never did. All of them were its own for as
// long as the cache may have been old, so none of them stands in for one that the log lacks.
func (o *owner) counted(i int) time.Time {
	for _, s := range slices.Backward(o.states[:i+1]) {
		if s.count < 0 {
			continue
		}
		from, known := s.received.Add(-lag), int32(0)
		for _, p := range o.pods {
			if len(p.owned) == 1 && p.shown.Before(from) && !endedMaybeBefore(p.ended, s.moment) {
				known++
			}
		}
		if s.count <= known {
			return from
		}
	}
	return time.Time{}
}

// acted returns the first state before i by which the controller may still have acted at state i:
// its status said which generation it had seen. Kinds that do not say may have acted by any.
func (o *owner) acted(i int) int {
	first := i
	for first > 0 && o.states[first-1].generation >= o.states[i].observed {
		first--
	}
	if o.states[i].observed == 0 {
		return 0
	}
	return first
}

// mostDesired and leastDesired are over the states from number first to number last.
func (o *owner) mostDesired(first, last int) int32 {
	most := o.states[first].start + o.states[first].desired
	for _, s := range o.states[first : last+1] {
		most = max(most, s.start+s.desired)
	}
	return most
}

func (o *owner) leastDesired(first, last int) int32 {
	least := o.states[first].start + o.states[first].desired
	for _, s := range o.states[first : last+1] {
		least = min(least, s.start+s.desired)
	}
	return least
}

// ordinal returns the number at the end of the name of a StatefulSet's pod.
func ordinal(set, name string) (int32, bool) {
	if len(name) <= len(set)+1 || name[:len(set)+1] != set+"-" {
		return 0, false
	}
	n, err := strconv.ParseInt(name[len(set)+1:], 10, 32)
	return int32(n), err == nil && n >= 0
}
