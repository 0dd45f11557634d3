package harness

import (
	"errors"
	"sync"
	"sync/atomic"
)

// workers is how many calls InParallel makes at a time.
const workers = 16

// InParallel calls f with every number below n, 16 calls at a time, and waits for all of them. A
// worker whose call fails makes no more calls. InParallel returns all errors joined.
func InParallel(n int, f func(i int) error) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, workers)
	for worker := range errs {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && errs[worker] == nil; i = next.Add(1) - 1 {
				errs[worker] = f(int(i))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
