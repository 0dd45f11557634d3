// Package listwatch lists and watches resources: what a clientset can read ([Kinds]), who filters by
// range ([Prober]), and what becomes of the answers on their way to a cache ([Ranged],
// [FilterList], [FilterWatch], [Reflection]).
//
// # Guarantees
//
//   - [Ranged] passes nothing on that is outside the range, whoever filters, except to an informer
//     that picks from all objects.
//   - A [Prober] says that the server filters only if an answer has shown it. A failed probe changes
//     nothing.
//   - A [Reflection] that is given a version lists nothing unless the server no longer knows that
//     version.
//   - A watch returned by [FilterWatch] leaves no goroutine behind once it has been stopped and the
//     one behind it has ended.
//
// # Non-guarantees
//
//   - A LIST that is under way when a Reflection ends is cancelled but not waited for: client-go's
//     Reflector sends it from a goroutine of its own.
//   - An answer of the Prober may be old: the server may have changed within [ProbeFor].
package listwatch
