package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// ControlPlane is a running control plane. Its methods may be called from any goroutine, unless
// they say otherwise.
type ControlPlane struct {
	opts Options
	dir  string
	// removeDir is dir if Stop is to remove it, and empty otherwise.
	removeDir string
	ca        *authority
	plane     envtest.ControlPlane
	reaper    *reaper
	logs      []*os.File

	admin             *rest.Config
	adminKubeconfig   string
	managerKubeconfig string

	// mu guards the fields below.
	mu          sync.Mutex
	kubeconfigs map[string]string
	processes   []*Process
	stopped     bool

	stopOnce sync.Once
	stopErr  error
}

// Start starts a control plane and returns when it is ready, as the package comment defines it. ctx
// bounds only the start. On an error Start cleans up, unless Options.Dir or KeepDir says otherwise.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	if err := opts.checkBinaries(); err != nil {
		return nil, err
	}
	dir, temporary, err := opts.makeDir()
	if err != nil {
		return nil, fmt.Errorf("controlplane: working directory: %w", err)
	}
	cp := &ControlPlane{opts: opts, dir: dir, kubeconfigs: map[string]string{}}
	if temporary && !opts.KeepDir {
		cp.removeDir = dir
	}
	began := time.Now()
	if err := cp.startAll(ctx); err != nil {
		return nil, errors.Join(err, cp.Stop())
	}
	cp.logf("control plane: ready after %.1f s in %s", time.Since(began).Seconds(), cp.dir)
	return cp, nil
}

// startAll starts each part after its dependencies. The reaper is first, so that nothing runs
// without it.
func (cp *ControlPlane) startAll(ctx context.Context) error {
	var err error
	if cp.reaper, err = startReaper(cp.pidDir(), cp.removeDir); err != nil {
		return fmt.Errorf("controlplane: start the reaper: %w", err)
	}
	pki := filepath.Join(cp.dir, "pki")
	if err := cp.makeFrom(pki); err != nil {
		return fmt.Errorf("controlplane: certificates: %w", err)
	}
	if cp.ca, err = newAuthority(pki); err != nil {
		return fmt.Errorf("controlplane: certificates: %w", err)
	}
	if err := cp.startEtcd(ctx); err != nil {
		return err
	}
	if err := cp.startAPIServer(ctx); err != nil {
		return err
	}
	if err := cp.provisionUsers(); err != nil {
		return err
	}
	if err := cp.waitReady(ctx); err != nil {
		return err
	}
	if cp.opts.Scheduler {
		if err := cp.startScheduler(ctx); err != nil {
			return err
		}
	}
	if cp.opts.Nodes > 0 {
		return cp.startNodes(ctx)
	}
	return nil
}

// checkBinaries reports all missing binaries before anything starts.
func (o Options) checkBinaries() error {
	names := []string{etcdName, apiServerName}
	if o.Scheduler {
		names = append(names, schedulerName)
	}
	if o.Nodes > 0 {
		names = append(names, kwokName)
	}
	var errs []error
	for _, name := range names {
		_, err := findBinary(o.BinDir, name)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Dir returns the working directory.
func (cp *ControlPlane) Dir() string { return cp.dir }

// Stop ends everything in reverse order: the processes of StartProcess together, then
// kube-apiserver, then etcd. It kills what does not stop cleanly and returns an error that says
// what that was. Further calls do nothing and return the same error.
func (cp *ControlPlane) Stop() error {
	cp.stopOnce.Do(func() {
		began := time.Now()
		cp.stopErr = cp.stopAll()
		cp.logf("control plane: stopped in %.1f s", time.Since(began).Seconds())
	})
	return cp.stopErr
}

func (cp *ControlPlane) stopAll() error {
	cp.mu.Lock()
	cp.stopped = true
	processes := cp.processes
	cp.mu.Unlock()

	// The API server goes last because leaving members hand over through it. All processes are
	// signalled together, as when a fleet is scaled to zero.
	errs := make([]error, len(processes))
	var group sync.WaitGroup
	for i, p := range processes {
		group.Go(func() { errs[i] = p.Stop(context.Background()) })
	}
	group.Wait()

	if cp.plane.APIServer != nil {
		errs = append(errs, cp.stopServer(apiServerName, cp.plane.APIServer.Stop))
	}
	if cp.plane.Etcd != nil {
		errs = append(errs, cp.stopServer(etcdName, cp.plane.Etcd.Stop))
	}
	for _, log := range cp.logs {
		errs = append(errs, log.Close())
	}
	// The reaper removes the directory, because it must do so anyway if this process dies.
	if cp.reaper != nil {
		errs = append(errs, cp.reaper.stop())
	}
	return errors.Join(errs...)
}

func (cp *ControlPlane) logf(format string, args ...any) {
	fmt.Fprintf(cp.opts.Log, format+"\n", args...)
}
