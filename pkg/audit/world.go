package audit

import (
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
)

// world is what the log shows about the objects that a fleet's controllers work on: the owners and
// deletions of all, the owners and lifetimes of pods, and how many pods their owners wanted. It
// keeps only metadata.
type world struct {
	things     map[string]*thing // by UID
	pods       map[string]*pod   // by UID
	owners     map[string]*owner // by UID
	nodes      map[string]*node  // by name
	namespaces map[string][]ending
	volumes    map[string][]volumeState // PersistentVolumes by name
	slices     map[string]*endpoints    // EndpointSlices by UID
	crons      map[string][]cronState   // CronJobs by UID
	siblings   map[siblingKey][]sibling
	// gone are deletions whose answer does not say which objects they were of.
	gone map[place][]ending
	// vague are writes with an unknown outcome; for pods only creates, by their collection.
	vague map[place][]vagueWrite
	// dropped are API groups whose custom resource definition was deleted: their objects go without
	// a request.
	dropped sets.Set[string]

	// gaps are when the log surely lacks a part: what was known before one may have changed in it.
	gaps []moment

	creations []creation
	deletions []deletion
	strings   map[string]string
	// told is when an answer first had a version: a later write answered with it has changed
	// nothing.
	told map[uint64]time.Time
}

// creation is a pod that a fleet created.
type creation struct {
	event event
	by    Identity
	at    moment
	pod   *pod
}

// deletion is a deletion by a fleet.
type deletion struct {
	event event
	by    Identity
	at    moment
	uid   string
	// collector is set if the garbage collector asked for it.
	collector bool
	// The pod as the answer had it; only the labels that show its template.
	whole              bool
	state              podState
	revision, template string
}

func newWorld() *world {
	return &world{
		things: map[string]*thing{}, pods: map[string]*pod{}, owners: map[string]*owner{}, nodes: map[string]*node{},
		namespaces: map[string][]ending{}, volumes: map[string][]volumeState{}, slices: map[string]*endpoints{},
		crons: map[string][]cronState{}, siblings: map[siblingKey][]sibling{},
		gone: map[place][]ending{}, vague: map[place][]vagueWrite{},
		dropped: sets.New[string](), strings: map[string]string{}, told: map[uint64]time.Time{},
	}
}

// read records anybody's mutating request. by is the claim it was made under; nil if none of the
// fleet's shards made it.
func (w *world) read(e event, by *Identity) {
	if !e.mayChangeObjects() {
		return
	}
	// A deletion of many that was refused in the middle has deleted some.
	if e.refused() && e.Verb != "deletecollection" {
		return
	}
	at := w.place(e)
	sure := !e.failed() && !e.refused()
	var o object
	if sure {
		o, _ = readObject(e.ResponseObject)
	}
	switch {
	case e.Verb == "deletecollection":
		w.removeMany(e, at, o, sure)
	case e.Verb == "delete" && e.ObjectRef.Subresource == "", e.resource() == "pods/eviction":
		w.remove(e, by, at, o, sure)
	case o.Metadata.UID != "":
		w.write(e, by, at, o)
	default:
		w.writeUnknown(e, at, sure)
	}
}

func (w *world) place(e event) place {
	r := e.ObjectRef
	at := place{group: w.intern(r.APIGroup), resource: w.intern(r.Resource), namespace: w.intern(r.Namespace), name: r.Name}
	if at.resource == "namespaces" && at.group == "" {
		at.namespace = "" // the API server puts a Namespace into itself
	}
	return at
}

// intern makes equal strings share their memory.
func (w *world) intern(s string) string {
	if known, ok := w.strings[s]; ok {
		return known
	}
	s = strings.Clone(s)
	w.strings[s] = s
	return s
}

func (w *world) thing(uid string, at place) *thing {
	t := w.things[uid]
	if t == nil {
		t = &thing{place: at}
		w.things[uid] = t
	}
	return t
}

func (w *world) write(e event, by *Identity, at place, o object) {
	m := e.moment(o.version())
	at.name = o.Metadata.Name
	if first, ok := w.told[m.version]; !ok || m.answered.Before(first) {
		w.told[m.version] = m.answered
	}
	t := w.thing(o.Metadata.UID, at)
	isNew := e.code == http.StatusCreated && e.ObjectRef.Subresource == ""
	if isNew {
		t.created, t.born = true, m
	}
	w.describe(t, o)
	if o.Metadata.DeletionTimestamp != "" {
		t.ended = append(t.ended, ending{moment: m, sure: true})
	} else if o.whole() && m.received.After(t.alive) && !(at.resource == "pods" && readPodState(o).finished()) {
		t.alive = m.received
	}
	w.writeSibling(e, by, t, o, m, isNew)
	switch {
	case at.group == "" && at.resource == "pods":
		w.writePod(e, by, t, o, m, isNew)
	case at.group == "" && at.resource == "nodes" && o.whole():
		n := w.node(at.name)
		s := readNodeState(o, m)
		s.created = isNew
		n.states = append(n.states, s)
	case at.group == "" && at.resource == "persistentvolumes" && o.whole():
		w.volumes[at.name] = append(w.volumes[at.name], readVolumeState(o, m))
	case ownsPods(at.group, at.resource):
		owner := w.owner(o.Metadata.UID, t)
		owner.states = append(owner.states, readOwnerState(o, at.resource, e.ObjectRef.Subresource, m))
	}
}

// describe keeps kind and owners, if the answer has them.
func (w *world) describe(t *thing, o object) {
	if o.whole() {
		t.kind = w.intern(o.Kind)
	}
	// Two API servers may log in another order than that of the versions.
	if (o.whole() || o.Kind == "PartialObjectMetadata") && o.version() >= t.told {
		t.refs, t.told = o.Metadata.OwnerReferences, o.version()
		for i := range t.refs {
			r := &t.refs[i]
			r.APIVersion, r.Kind, r.Name, r.UID = w.intern(r.APIVersion), w.intern(r.Kind), w.intern(r.Name), w.intern(r.UID)
		}
	}
}

func (w *world) writePod(e event, by *Identity, t *thing, o object, m moment, isNew bool) {
	p := w.pod(o.Metadata.UID, t)
	if p.shown.IsZero() || m.answered.Before(p.shown) {
		p.shown = m.answered
	}
	controller := w.intern(o.Metadata.controller())
	if n := len(p.owned); n == 0 || p.owned[n-1].owner != controller || p.owned[n-1].version > m.version {
		p.owned = append(p.owned, ownership{version: m.version, owner: controller})
	}
	state := readPodState(o)
	if state.node != "" {
		p.node = w.intern(state.node)
	}
	if state.finished() {
		t.ended = append(t.ended, ending{moment: m, sure: true})
	}
	if isNew && by != nil {
		w.creations = append(w.creations, creation{event: e.lean(), by: *by, at: m, pod: p})
	}
}

func (w *world) pod(uid string, t *thing) *pod {
	p := w.pods[uid]
	if p == nil {
		p = &pod{thing: t}
		w.pods[uid] = p
	}
	return p
}

func (w *world) owner(uid string, t *thing) *owner {
	o := w.owners[uid]
	if o == nil {
		o = &owner{thing: t}
		w.owners[uid] = o
	}
	return o
}

func (w *world) node(name string) *node {
	n := w.nodes[name]
	if n == nil {
		n = &node{}
		w.nodes[name] = n
	}
	return n
}

func (w *world) remove(e event, by *Identity, at place, o object, sure bool) {
	uid, version := o.Metadata.UID, o.version()
	if uid == "" {
		uid, version = o.Details.UID, 0
	}
	m := e.moment(version)
	end := ending{moment: m, sure: sure, twice: at.group == "" && at.resource == "pods" && ptr.Deref(o.Metadata.GracePeriod, 1) == 0}
	switch {
	case at.resource == "customresourcedefinitions":
		_, group, _ := strings.Cut(at.name, ".")
		w.dropped.Insert(group)
	case at.group == "" && at.resource == "namespaces":
		w.namespaces[at.name] = append(w.namespaces[at.name], end)
	case at.group == "" && at.resource == "nodes":
		n := w.node(at.name)
		n.ended = append(n.ended, end)
	}
	if uid == "" {
		w.gone[at] = append(w.gone[at], end)
		return
	}
	t := w.thing(uid, at)
	t.ended = append(t.ended, end)
	if o.Metadata.UID != "" {
		w.describe(t, o)
	}
	if by == nil {
		return
	}
	d := deletion{event: e.lean(), by: *by, at: m, uid: uid, collector: e.controller() == garbageCollector, whole: o.whole()}
	if at.group == "" && at.resource == "pods" && d.whole {
		d.state = readPodState(o)
		d.revision = w.intern(o.Metadata.Labels[revisionLabel])
		d.template = w.intern(o.Metadata.Labels[templateGenerationLabel])
	}
	w.deletions = append(w.deletions, d)
}

// removeMany records a deletecollection. What its answer lists is gone; more may be gone only if it
// failed.
func (w *world) removeMany(e event, at place, o object, sure bool) {
	end := ending{moment: e.moment(0), sure: sure}
	if !sure || e.ResponseObject == nil || o.Kind == "Status" || o.Kind == "" {
		end.sure = false
		w.gone[at.collection()] = append(w.gone[at.collection()], end)
		return
	}
	for _, item := range o.Items {
		item := item.Metadata
		t := w.thing(item.UID, place{group: at.group, resource: at.resource, namespace: w.intern(item.Namespace), name: item.Name})
		t.ended = append(t.ended, end)
		if at.resource == "nodes" {
			n := w.node(item.Name)
			n.ended = append(n.ended, end)
		}
	}
}

// writeUnknown records a create or change whose outcome the log does not show.
func (w *world) writeUnknown(e event, at place, sure bool) {
	m := e.moment(0)
	u := vagueWrite{moment: m}
	if asked, ok := readObject(e.RequestObject); ok && asked.Kind != "" {
		u.asked, u.owner = true, asked.Metadata.controller()
	}
	switch {
	case e.Verb == "create" && e.ObjectRef.Subresource == "":
		w.vague[at.collection()] = append(w.vague[at.collection()], u)
	case at.group == "" && at.resource == "pods" && !(sure && e.ObjectRef.Subresource == "binding"):
		w.gone[at] = append(w.gone[at], ending{moment: m})
	case at.resource == "nodes" && sure && e.ObjectRef.Subresource == "status":
	default:
		w.vague[at] = append(w.vague[at], u)
	}
}

// finish puts everything in order once the whole log was read.
func (w *world) finish() {
	for _, t := range w.things {
		for _, at := range []place{t.place, t.collection()} {
			for _, end := range w.gone[at] {
				if (!t.created || !end.answered.Before(t.born.received)) && (end.sure || !t.aliveAfter(end.moment)) {
					t.ended = append(t.ended, end)
				}
			}
		}
	}
	for _, n := range w.nodes {
		n.sort()
	}
	w.sortSiblings()
	for uid, p := range w.pods {
		p.sort()
		seen := sets.New[string]()
		for _, owned := range p.owned {
			if o := w.owners[owned.owner]; o != nil && !seen.Has(owned.owner) {
				seen.Insert(owned.owner)
				o.pods = append(o.pods, w.pods[uid])
			}
		}
		if o := w.owners[p.owner(p.born.version)]; o != nil && p.created {
			o.creates = append(o.creates, p.born)
		}
	}
	for _, o := range w.owners {
		o.sort()
	}
}
