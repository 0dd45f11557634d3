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

// Profile writes three profiles of every process to dir, once it serves requests: its CPU for as
// long as d, rounded down to seconds, and after that its live heap and its goroutines. The files
// are named after prefix, process and kind. Profiling costs CPU itself: figures that were measured
// meanwhile are for finding causes, and not for comparing.
func (r *Running) Profile(ctx context.Context, dir, prefix string, d time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	kinds := []struct{ name, path string }{
		{"cpu", fmt.Sprintf("profile?seconds=%d", int(d.Seconds()))},
		{"heap", "heap?gc=1"},
		{"goroutines", "goroutine"},
	}
	faults := make([]error, len(r.processes))
	var all sync.WaitGroup
	for i, p := range r.processes {
		all.Go(func() {
			faults[i] = r.until(ctx, "serves requests", wholeLimit, func(ctx context.Context) error {
				_, err := r.get(ctx, p.process.URL+"/metrics")
				return err
			})
			if faults[i] != nil {
				return
			}
			for _, kind := range kinds {
				file := filepath.Join(dir, fmt.Sprintf("%s-%s-%s.pprof", prefix, p.Name, kind.name))
				faults[i] = errors.Join(faults[i], r.save(ctx, p.process.URL+"/debug/pprof/"+kind.path, file))
			}
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
