// Package system starts what a benchmark compares: the stock controller manager, or a fleet of some
// members, each process behind a counting proxy to the API server. It waits until the system is
// whole and quiet, and reads what its processes use.
//
//	Start -> Whole -> Balance -> Quiet -> Sample, the work, Sample -> Figures -> Stop
//
// A Running's methods are for one goroutine. Stop ends every process and goroutine that Start
// began.
package system
