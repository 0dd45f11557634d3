package heap

import (
	"fmt"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Share is the part of the container's memory limit that Go may use. The rest is for memory that Go
// does not count: the binary's own pages, and the kernel's.
const Share = 0.9

// Limit makes Go collect garbage harder once the process uses [Share] of its container's memory
// limit, and returns that bound in bytes. It changes nothing and returns 0 if the container has no
// limit, or if the environment has a GOMEMLIMIT, which then applies. Call it once, at the start of
// the process. The error says that the container's limit could not be read; nothing has changed
// then.
func Limit() (int64, error) { return limit(memlimit.FromCgroup) }

func limit(container memlimit.Provider) (int64, error) {
	bytes, err := memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(Share), memlimit.WithProvider(container))
	if err != nil {
		return 0, fmt.Errorf("setting Go's memory limit to %v of the container's: %w", Share, err)
	}
	return bytes, nil
}
