//go:build unix

package app

import (
	"syscall"
	"time"
)

// processorTime returns what the process has used so far of the processors.
func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0 // it fails for wrong arguments alone
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
