// Package verdict judges runs of upstream's specs: the same list with the stock controller manager
// and with the fleet.
//
// Guarantees, all of them pure functions of reports and list:
//
//   - A spec of the list that passed with the stock controller manager and did not with the fleet
//     is broken, and the verdict is an error. Passing when tried again counts as passing, and is
//     counted apart.
//   - A spec of the list that did not run, with either, is missing, and the verdict is an error: a
//     typing error in the list, a spec that upstream has reworded and a suite that ended early do
//     not pass for success.
//   - A spec that ran with the stock controller manager and did not pass there is inconclusive. It
//     is named in the summary, and no error: it says nothing about the fleet.
//   - A spec that ran and skipped itself has not passed.
//
// Not guaranteed: what a spec tests. That is upstream's.
package verdict
