package heap

import (
	"errors"
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// TestLimit requires a limit of nine tenths of the container's memory, unless the operator has set
// another one.
func TestLimit(t *testing.T) {
	const container = 10 << 30
	of := func(bytes uint64, err error) memlimit.Provider { return func() (uint64, error) { return bytes, err } }
	for name, test := range map[string]struct {
		env       string
		container memlimit.Provider
		want      int64 // 0 means unchanged.
		fails     bool
	}{
		"a limit":               {"", of(container, nil), 9 << 30, false},
		"no limit":              {"", of(0, memlimit.ErrNoLimit), 0, false},
		"cannot be read":        {"", of(0, errors.New("no cgroup here")), 0, true},
		"the operator's counts": {"123MiB", of(container, nil), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := debug.SetMemoryLimit(math.MaxInt64)
			defer debug.SetMemoryLimit(before)
			t.Setenv("GOMEMLIMIT", test.env)
			if test.env == "" {
				os.Unsetenv("GOMEMLIMIT")
			}
			got, err := limit(test.container)
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("%d, %v; want %d", got, err, test.want)
			}
			want := int64(math.MaxInt64)
			if test.want > 0 {
				want = test.want
			}
			if set := debug.SetMemoryLimit(-1); set != want {
				t.Errorf("Go has a limit of %d, want %d", set, want)
			}
		})
	}
}
