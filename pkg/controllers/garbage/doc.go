// Package garbage runs upstream's garbage collector, unmodified, on one part of the graph of
// owners: each range of namespaces has a collector, and the cluster has one. docs/design/garbage.md
// has the argument why the parts come to the same result as the whole.
//
//	collector of a range    its namespaced objects, with their owner references to namespaced kinds
//	collector of the cluster  cluster-scoped objects; and namespaced ones with a cluster-scoped owner, with
//	                          their owner references to cluster-scoped kinds
//
// The differences are around upstream's collector: what its informers report ([Informers], [Pick]),
// and how its client changes its writes ([RangeClient], [ClusterClient]).
//
// # Guarantees
//
//   - Every edge is in some part. An edge whose owner is of a kind that is not known yet is in
//     both; whichever collector acts first asks the API server for the object and its owners, as
//     upstream's collector always does.
//   - Caches and handlers share objects, and nothing here changes them.
//   - A collector hears of a deletion only when there was one. Otherwise it would take an object
//     that exists for absent.
//   - A range's collector writes nothing outside of the range.
//
// # Non-guarantees
//
//   - An owner reference from a cluster-scoped object to a namespaced kind is not an edge of any
//     range: see docs/design/garbage.md.
//   - The event OwnerRefInvalidNamespace is written only if both namespaces are in one range.
//   - When an owner's kind becomes known, an object that the collector already has is not cut again
//     at once, but with its next change.
package garbage
