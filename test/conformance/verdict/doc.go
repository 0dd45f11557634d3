// Package verdict judges runs of upstream's specs: the same list with the stock controller manager
// and with the fleet.
//
// Guarantees, all of them pure functions of reports and list:
//
//   - A spec of the list that passed with the stock controller manager but not with the fleet is
//     broken, and the verdict is an error. Passing when tried again counts as passing, and is
//     counted separately.
//   - A spec of the list that did not run, with either, is missing, and the verdict is an error. So
//     a typing error in the list, a spec that upstream has reworded or a suite that ended early
//     cannot look like success.
//   - A spec that ran with the stock controller manager and did not pass there is inconclusive. The
//     summary names it, but it is not an error: it says nothing about the fleet.
//   - A spec that ran and skipped itself has not passed.
//
// Not guaranteed: what a spec tests. Upstream decides that.
package verdict
