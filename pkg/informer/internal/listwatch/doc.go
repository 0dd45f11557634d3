// Package listwatch lists and watches resources: what a clientset can read ([Kinds]), who filters
// by range ([Prober]), and what becomes of the answers on their way to a cache ([Ranged],
// [FilterList], [FilterWatch], [Reflection]).
//
// # Guarantees
//
//   - A list of [Ranged] has nothing that is outside the range, whoever filters, unless the informer
//     picks from all objects.
//   - A [Prober] that cannot ask keeps the server's last answer about that resource. Before the
//     first one it says that the client filters.
//   - A [Reflection] whose store has been filled lists only if its watch from there fails: because
//     the server says so, for example that the version is too old, because the watch ends twice in
//     a row without anything new, or because ten in a row get no answer.
//   - A watch of [FilterWatch] leaves no goroutine behind once it has been stopped and the one
//     behind it has ended.
//
// # Non-guarantees
//
//   - Where the server filters, a watch of Ranged is passed on as it comes. The store filters again.
//   - A wrong answer of a Prober costs requests, nothing else: it may be old, and for resources that
//     are not built in it is inferred. See its comment.
//   - A watch may say after it has begun that the version is too old. A Reflection cannot tell that
//     from other ends of a watch, so it lists only after another attempt.
//   - A LIST that is under way when a Reflection ends is cancelled but not waited for: the Reflector
//     sends it from a goroutine of its own.
package listwatch
