package controllers

import "runtime/metrics"

// What things take of the heap that hold no objects, in bytes: measured, see docs/design/plan.md.
const (
	processBytes = 13_000_000
	// rangeBytes and groupBytes are of all controllers of a range, and of those of a group.
	rangeBytes, groupBytes = 3_700_000, 500_000
	// nodeBytes is what the garbage collector keeps of an object in its graph, beside the object.
	nodeBytes = 700
)

// Load is an estimate of what an instance takes of the heap, in bytes.
type Load struct {
	// Namespaces is of what is cached for the instance alone, by namespace.
	Namespaces map[string]int64
	// Shared is of all else that is cached for it, Fixed of what it takes without any object.
	Shared, Fixed int64
}

// Load returns what the instance takes; false once it has ended.
func (i *Instance) Load() (Load, bool) {
	cached, there := i.informers.Load()
	load := Load{Namespaces: cached.Namespaces, Shared: cached.Shared, Fixed: rangeBytes}
	if i.informers.Range().IsEverything() {
		load.Fixed = groupBytes
	}
	if i.collects {
		load.Shared += nodeBytes * cached.Objects
	}
	return load, there
}

// Memory returns what the process takes of the heap: what was in use when garbage was last collected, and an estimate of what
// of it is no shard's, in bytes. It goes through the keys of some caches.
func (p *Process) Memory() (live, beside int64) { return LiveHeap(), processBytes + p.pool.Load() }

// LiveHeap returns what of this process's heap was in use when garbage was last collected, in bytes.
func LiveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
