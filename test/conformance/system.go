package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const (
	fleetName = "flotilla"

	// wholeLimit is how long a fleet may take on a busy machine until every shard runs and every
	// member has some. It includes the shipped rebalance delay of 10 s and, after a kill, the Lease
	// duration of 15 s.
	wholeLimit = 3 * time.Minute
)

// system is a control plane and the processes that run its controllers.
type system struct {
	name  string
	plane *controlplane.ControlPlane
	o     options
	dir   string
	// members are the fleet's members, nil for stock.
	members []*member
	stock   *harness.Manager
	// gone are the incarnations that were killed. Their Leases name them as holders until they
	// expire.
	gone map[string]bool
}

// startSystem starts a fresh control plane, whose logs go to dir, and the controllers. It returns
// when the controllers work.
func startSystem(ctx context.Context, o options, name, dir string) (_ *system, err error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{
		BinDir: o.binDir, Dir: filepath.Join(dir, "controlplane"), Nodes: o.nodes, Scheduler: true, AuditObjects: true,
	})
	if err != nil {
		return nil, err
	}
	s := &system{name: name, plane: plane, o: o, dir: dir, gone: map[string]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if err := prepare(ctx, plane); err != nil {
		return s, err
	}
	if name == "stock" {
		return s, s.startStock(ctx)
	}
	for i := range o.members {
		m, err := newMember(plane, fmt.Sprintf("%s-%d", fleetName, i))
		if err != nil {
			return nil, err
		}
		s.members = append(s.members, m)
		if err := m.start(); err != nil {
			return nil, err
		}
	}
	return s, s.whole(ctx)
}

// managerFlags returns the flags that both systems get.
func managerFlags() []string {
	return []string{
		// The suite does in minutes what a cluster sees in hours. Without higher client limits it
		// would mostly test waiting.
		"--kube-api-qps=200", "--kube-api-burst=400",
		// The default storage class depends on this provisioner.
		"--enable-hostpath-provisioner=true",
	}
}

func (s *system) startStock(ctx context.Context) error {
	var err error
	if s.stock, err = harness.Start(s.plane, harness.Spec{Name: harness.Stock, Binary: harness.Stock, Flags: managerFlags()}); err != nil {
		return err
	}
	_, err = harness.Await(ctx, wholeLimit, "the stock controller manager is healthy", s.stock.Answers("/healthz", http.StatusOK))
	return err
}

// alive returns an error if a process that runs controllers has ended.
func (s *system) alive() error {
	var errs []error
	if s.stock != nil {
		errs = append(errs, s.stock.Running())
	}
	for _, m := range s.members {
		errs = append(errs, m.alive())
	}
	return errors.Join(errs...)
}

// fleetStatus is the part of `flotilla status -o json` that the tests read.
type fleetStatus struct {
	Rings []struct {
		Shards []struct{ Shard, State, Holder, Incarnation string }
	}
}

// whole returns once every shard runs and every member has one.
func (s *system) whole(ctx context.Context) error {
	_, err := harness.Await(ctx, wholeLimit, "the fleet is whole", func(ctx context.Context) error {
		if err := s.alive(); err != nil {
			return err
		}
		status, err := s.status(ctx)
		if err != nil {
			return err
		}
		return status.whole(len(s.members), s.gone)
	})
	return err
}

func (s *system) status(ctx context.Context) (status fleetStatus, err error) {
	binary, err := s.plane.Binary(fleetName)
	if err != nil {
		return status, err
	}
	// A nonzero exit status reports findings, which may go away.
	out, err := exec.CommandContext(ctx, binary, "status", "-o", "json", "--kubeconfig", s.plane.AdminKubeconfig()).Output()
	if jsonErr := json.Unmarshal(out, &status); jsonErr != nil {
		return status, fmt.Errorf("flotilla status: %v, %w", err, jsonErr)
	}
	return status, nil
}

// whole returns nil if every shard runs, no holder is an incarnation that is gone, and there are as
// many holders as members.
func (f fleetStatus) whole(members int, gone map[string]bool) error {
	holders := map[string]bool{}
	shards := 0
	for _, ring := range f.Rings {
		for _, shard := range ring.Shards {
			if shard.State != "running" {
				return fmt.Errorf("shard %s is %s", shard.Shard, shard.State)
			}
			if gone[shard.Incarnation] {
				return fmt.Errorf("shard %s is still held by %s, which was killed", shard.Shard, shard.Incarnation)
			}
			shards++
			holders[shard.Holder] = true
		}
	}
	if shards == 0 || len(holders) != members {
		return fmt.Errorf("%d shards are held by %d of %d members", shards, len(holders), members)
	}
	return nil
}

func (s *system) stop() error { return s.plane.Stop() }
