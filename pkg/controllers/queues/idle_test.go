package queues_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// BenchmarkIdleQueues measures what 130 empty queues cost, about as many as a member with four
// ranges has: client-go's, which tick, and ours. The figure is milliseconds of CPU per second. The
// queues are made one after the other within a tick, because the process wakes up once for all that
// tick together.
func BenchmarkIdleQueues(b *testing.B) {
	const count, period = 130, 500 * time.Millisecond
	for name, provider := range map[string]workqueue.MetricsProvider{"ticking": silent{}, "ours": nil} {
		b.Run(name, func(b *testing.B) {
			for i := range count {
				q := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Name: fmt.Sprint("idle-", i), MetricsProvider: provider})
				b.Cleanup(q.ShutDown)
				<-time.After(period / count)
			}
			<-time.After(period)
			before := cpu(b)
			for b.Loop() {
				<-time.After(time.Second)
			}
			b.ReportMetric(float64((cpu(b)-before).Milliseconds())/b.Elapsed().Seconds(), "cpu-ms/s")
		})
	}
}

// cpu returns the CPU time that the process has used so far.
func cpu(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// silent is a provider of metrics that do nothing, so client-go's goroutines keep ticking.
type silent struct{}

func (silent) NewDepthMetric(string) workqueue.GaugeMetric                         { return silent{} }
func (silent) NewAddsMetric(string) workqueue.CounterMetric                        { return silent{} }
func (silent) NewLatencyMetric(string) workqueue.HistogramMetric                   { return silent{} }
func (silent) NewWorkDurationMetric(string) workqueue.HistogramMetric              { return silent{} }
func (silent) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric { return silent{} }
func (silent) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return silent{}
}
func (silent) NewRetriesMetric(string) workqueue.CounterMetric { return silent{} }
func (silent) Inc()                                            {}
func (silent) Dec()                                            {}
func (silent) Set(float64)                                     {}
func (silent) Observe(float64)                                 {}
