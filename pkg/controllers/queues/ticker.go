package queues

import (
	"runtime"
	"strings"
)

// ticker is what client-go sets twice a second for each queue, on a goroutine that the queue has for this alone: for how long its
// work has been under way. Nobody reads it, for this package works that out itself when somebody asks. So the goroutine is ended
// at the first tick: a member has more than a hundred queues, most of them empty, and to wake up for each of them took more than
// half of an idle member's CPU (BenchmarkIdleQueues).
//
// Goexit runs what the goroutine has deferred, which unlocks the queue, stops its timer and says that it has ended, as at the
// queue's shutdown.
type ticker struct{}

// Set implements workqueue.SettableGaugeMetric.
func (ticker) Set(float64) {
	if isTicker() {
		runtime.Goexit()
	}
}

// isTicker reports whether the calling goroutine is the one of a queue that does nothing else. A
// version of client-go that sets the gauges from elsewhere keeps its goroutines, and TestTickersEnd
// fails.
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
