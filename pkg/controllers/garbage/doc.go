// Package garbage has the garbage collector, upstream's and unmodified, work on one part of the graph of owners: each range of
// namespaces has a collector, and the cluster has one. docs/design/garbage.md has the argument why the parts come to the same
// as the whole.
//
//	collector of a range    its namespaced objects, with their owner references to namespaced kinds
//	collector of the cluster  cluster-scoped objects; and namespaced ones with a cluster-scoped owner, with
//	                          their owner references to cluster-scoped kinds
//
// What differs is around upstream's collector: what its informers tell it ([Informers], [Pick]), and what its client makes of
// its writes ([RangeClient], [ClusterClient]).
//
// # Guarantees
//
//   - No edge is in no part. One whose owner is of a kind that is not known yet is in both; whichever acts asks the API server
//     for object and owners first, as upstream's collector always does.
//   - Caches and handlers share objects, and nothing here changes them.
//   - A collector is told of a deletion only when there was one. Otherwise it would take what is there for absent.
//   - A range's collector writes nothing outside of the range.
//
// # Non-guarantees
//
//   - An owner reference from a cluster-scoped object to a namespaced kind is no edge of any range: see docs/design/garbage.md.
//   - The event OwnerRefInvalidNamespace is written only where both namespaces are in one range.
//   - What a collector has been told of an object is not cut anew when its owner's kind becomes known, but with its next change.
package garbage
