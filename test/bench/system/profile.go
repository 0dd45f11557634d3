package system

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Profile writes a CPU profile of every process to dir, for as long as d, rounded down to seconds.
// The files are named after prefix and process. Profiling costs CPU itself: figures that were
// measured meanwhile are for finding causes, and not for comparing.
func (r *Running) Profile(ctx context.Context, dir, prefix string, d time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	faults := make([]error, len(r.processes))
	var all sync.WaitGroup
	for i, p := range r.processes {
		all.Go(func() {
			url := fmt.Sprintf("%s/debug/pprof/profile?seconds=%d", p.process.URL, int(d.Seconds()))
			file := filepath.Join(dir, prefix+"-"+p.Name+".pprof")
			faults[i] = r.save(ctx, url, file)
		})
	}
	all.Wait()
	return errors.Join(faults...)
}

// save writes the content of a URL to a file.
func (r *Running) save(ctx context.Context, url, name string) error {
	body, err := r.open(ctx, url)
	if err != nil {
		return err
	}
	defer body.Close()
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, body)
	return errors.Join(err, file.Close())
}
