package measure

import (
	"context"
	"fmt"
	"time"
)

// Processes are quiet once they have used less than quietShare of a core in each of quietSeconds
// seconds.
const (
	quietSeconds = 4
	quietShare   = 0.25
)

// Quiet returns once processes, all together, have used little CPU for some seconds, or an error
// after the limit.
func Quiet(ctx context.Context, limit time.Duration, pids ...int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("after %v it still uses more than %v of a core", limit, quietShare))
	defer cancel()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	before, err := cpuOfAll(pids)
	if err != nil {
		return err
	}
	at := time.Now()
	for quiet := 0; quiet < quietSeconds; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		total, err := cpuOfAll(pids)
		if err != nil {
			return err
		}
		now := time.Now()
		if quiet++; (total - before).Seconds() > quietShare*now.Sub(at).Seconds() {
			quiet = 0
		}
		before, at = total, now
	}
	return nil
}

func cpuOfAll(pids []int) (total time.Duration, err error) {
	for _, pid := range pids {
		used, err := CPU(pid)
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, nil
}
