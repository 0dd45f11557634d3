package controllers

import "runtime/metrics"

// What takes heap without holding objects, in bytes: measured, see docs/design/plan.md.
const (
	processBytes = 13_000_000
	// rangeBytes is for all controllers of a range, groupBytes for those of a group.
	rangeBytes, groupBytes = 3_700_000, 500_000
	// nodeBytes is what the garbage collector keeps of an object in its graph, in addition to the
	// object.
	nodeBytes = 700
)

// Load is an estimate of the heap that an instance takes, in bytes.
type Load struct {
	// Namespaces is the size of what is cached for the instance alone, by namespace.
	Namespaces map[string]int64
	// Shared is the size of everything else that is cached for it, Fixed what it takes without
	// objects.
	Shared, Fixed int64
}

// Load returns what the instance takes; false once it has ended.
func (i *Instance) Load() (Load, bool) {
	cached, there := i.informers.Load()
	load := Load{Namespaces: cached.Namespaces, Shared: cached.Shared, Fixed: rangeBytes}
	if !i.informers.IsRange() {
		load.Fixed = groupBytes
	}
	if i.collects {
		load.Shared += nodeBytes * cached.Objects
	}
	return load, there
}

// Memory returns the process's heap in bytes: live is what was in use after the last garbage
// collection, and beside an estimate of the part of it that belongs to no shard. It goes through
// the keys of some caches.
func (p *Process) Memory() (live, beside int64) { return LiveHeap(), processBytes + p.pool.Load() }

// LiveHeap returns how much of this process's heap was in use after the last garbage collection, in
// bytes.
func LiveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
