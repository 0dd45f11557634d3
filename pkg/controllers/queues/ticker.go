package queues

import (
	"runtime"
	"strings"
)

// ticker is the gauge that client-go sets twice a second for each queue, on a goroutine of the
// queue's own: how long its work has been in progress. Nobody reads it, for this package computes
// that itself on request. So ticker ends the goroutine at the first tick: a member has more than a
// hundred queues, most of them empty, and waking up for each took more than half of an idle
// member's CPU (BenchmarkIdleQueues).
//
// Goexit runs the goroutine's deferred calls, which unlock the queue, stop its timer and report
// that it has ended, as at the queue's shutdown.
type ticker struct{}

// Set implements workqueue.SettableGaugeMetric.
func (ticker) Set(float64) {
	if isTicker() {
		runtime.Goexit()
	}
}

// isTicker reports whether the calling goroutine is a queue's goroutine that does nothing else.
// With a version of client-go that sets the gauges from elsewhere, goroutines stay and
// TestTickersEnd fails.
func isTicker() bool {
	var callers [8]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers[:])])
	for {
		frame, more := frames.Next()
		if strings.HasPrefix(frame.Function, "k8s.io/client-go/util/workqueue.") && strings.HasSuffix(frame.Function, ".updateUnfinishedWorkLoop") {
			return true
		}
		if !more {
			return false
		}
	}
}
