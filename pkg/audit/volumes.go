package audit

import (
	"cmp"
	"slices"
)

// expander is the identity of the one controller with a range that writes PersistentVolumes: those
// of claims in its range.
const expander = "expand-controller"

// volumeState is a PersistentVolume after one write.
type volumeState struct {
	moment
	namespace string // of the claim that it is bound to; empty if there is none
}

func readVolumeState(o object, at moment) volumeState {
	var spec struct {
		ClaimRef struct {
			Namespace string `json:"namespace"`
		} `json:"claimRef"`
	}
	decode(orEmpty(o.Spec), &spec)
	return volumeState{moment: at, namespace: spec.ClaimRef.Namespace}
}

// judgeVolume compares a write of a PersistentVolume with the range, by the claim that the volume
// is bound to.
func (c *checker) judgeVolume(f fact, w write) {
	e, name := w.event, w.event.ObjectRef.Name
	if len(c.controllers[w.identity]) > 0 && w.identity != expander {
		c.convict(e, WrongScope, "%s: %s has no business with persistentvolume %q", w.by, w.identity, name)
		return
	}
	s, known := c.world.volume(name, e.moment(w.version))
	switch {
	case !known:
		c.report.VolumesUnknown++
		return
	case s.namespace == "":
		c.convict(e, WrongScope, "%s: persistentvolume %q is bound to no claim", w.by, name)
	case !f.extent.Range.ContainsNamespace(s.namespace):
		c.convict(e, WrongRange, "%s: persistentvolume %q is bound to a claim in namespace %q, outside of %s", w.by, name, s.namespace, f.extent.Range)
	}
	c.report.Volumes++
}

// volume returns the state of a PersistentVolume when a request took effect, as far as the log
// shows.
func (w *world) volume(name string, m moment) (found volumeState, known bool) {
	for _, s := range w.volumes[name] {
		if s.maybeBefore(m) || s.moment == m {
			found, known = s, true
		}
	}
	return found, known
}

func (w *world) sortVolumes() {
	for _, states := range w.volumes {
		slices.SortStableFunc(states, func(a, b volumeState) int { return cmp.Compare(a.version, b.version) })
	}
}
