package audit

import (
	"strconv"
	"time"
)

// objectKey names an object, whichever part of it is written.
type objectKey struct{ group, resource, namespace, name string }

func (e event) key() objectKey {
	return objectKey{e.ObjectRef.APIGroup, e.ObjectRef.Resource, e.ObjectRef.Namespace, e.ObjectRef.Name}
}

// reached is when an object was known to be at a version: the answer was on its way.
type reached struct {
	version uint64
	at      time.Time
}

// overtaken finds failed updates that stored nothing: those for a version of the object that
// another write, answered before they arrived, had replaced. The API server refuses them as
// conflicts, if it answers at all.
type overtaken map[objectKey][]reached

func newOvertaken(writes []write) overtaken {
	o := overtaken{}
	for _, w := range writes {
		if e := w.event; w.version > 0 && !e.refused() && !e.failed() {
			o[e.key()] = append(o[e.key()], reached{w.version, e.Answered.Time})
		}
	}
	return o
}

func (o overtaken) has(e event) bool {
	asked, err := strconv.ParseUint(e.ObjectRef.ResourceVersion, 10, 64)
	if err != nil || asked == 0 || e.Verb != "update" || !e.failed() {
		return false
	}
	for _, r := range o[e.key()] {
		if r.version > asked && r.at.Before(e.Received.Time) {
			return true
		}
	}
	return false
}
