//go:build plant_ancestors_ignored

package plant

// AncestorsIgnored says that a shard is run while live Leases of an older plan generation cover some of it.
const AncestorsIgnored = true
