package audit

// garbageCollector is the controller that deletes objects that have lost their owners.
const garbageCollector = "generic-garbage-collector"

// judgeCollected convicts the garbage collector if an owner of a deleted object existed, and nobody
// had asked for the owner's deletion. The garbage collector asks the API server for every owner
// before it deletes, so no cache excuses it.
func (b *bench) judgeCollected(d deletion) {
	t := b.things[d.uid]
	if len(t.refs) == 0 {
		b.skip("collected: its owners are not in the log")
		return
	}
	b.judged.Collected++
	for _, ref := range t.refs {
		owner := b.things[ref.UID]
		if owner == nil || !owner.created {
			b.skip("collected: the creation of an owner is not in the log")
			continue
		}
		if b.solid(t, ref, owner, d.at) {
			b.accuse(d.event, owner.born, OwnedDeleted, "%s: deleted %s of %s, which nobody had asked to delete", d.by, t.title(), owner.title())
			return
		}
	}
}

// solid reports whether an owner surely was the owner when m took effect: of the kind, name and
// namespace in the reference, made before, and with no deletion asked for.
func (b *bench) solid(t *thing, ref reference, owner *thing, m moment) bool {
	switch {
	case owner.kind != ref.Kind, owner.name != ref.Name, owner.group != ref.group():
		return false
	case owner.namespace != "" && owner.namespace != t.namespace:
		return false
	case b.dropped.Has(owner.group):
		return false
	case !owner.born.before(m):
		return false
	default:
		return !endedMaybeBefore(owner.ended, m)
	}
}
