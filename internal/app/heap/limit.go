package heap

import (
	"fmt"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Share is how much of the container's memory Go may take. The rest is for what it does not count: the binary's own pages, and
// those of the kernel.
const Share = 0.9

// Limit has Go collect its garbage harder once the process takes [Share] of what its container may, and returns that in bytes.
// It changes nothing and returns 0 where the container has no limit, or where the environment has a GOMEMLIMIT, which then counts.
// Call it once, at the start of the process. The error says that the container's limit could not be read; nothing has changed then.
func Limit() (int64, error) { return limit(memlimit.FromCgroup) }

func limit(container memlimit.Provider) (int64, error) {
	bytes, err := memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(Share), memlimit.WithProvider(container))
	if err != nil {
		return 0, fmt.Errorf("setting Go's memory limit to %v of the container's: %w", Share, err)
	}
	return bytes, nil
}
