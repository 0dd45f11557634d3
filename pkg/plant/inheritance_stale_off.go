//go:build !plant_inheritance_stale

package plant

// InheritanceStale says that a shard which inherits from others does not wait until its caches have seen their last writes.
const InheritanceStale = false
