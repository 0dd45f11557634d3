package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// leaveLimit limits how long the replicas may take to release their shards and exit; a pod has half
// as long by default.
const leaveLimit = time.Minute

var (
	errInterrupted = errors.New("interrupted")
	errLimit       = errors.New("it did not happen in time")
)

// demo is one run.
type demo struct {
	opts   options
	dir    string
	screen *screen

	plan shard.Plan
	// owned has the owner of each shard when all replicas are there; left is the same without the
	// victim.
	owned, left map[shard.ID]string
	// victim is the replica that is killed; moved are the namespaces in its shards.
	victim string
	moved  []string

	cp       *controlplane.ControlPlane
	client   kubernetes.Interface
	observer *observer
	replicas *replicas

	killed loss

	// mu guards what draw reads.
	mu      sync.Mutex
	tenants []tenant

	// die ends the run with a reason.
	die     context.CancelCauseFunc
	drawing sync.WaitGroup
}

// loss is the end of the victim.
type loss struct {
	incarnation string
	at          time.Time
}

// step is a part of the demo.
type step struct {
	// title says what the step does, expect what must result within the limit.
	title, expect string
	limit         time.Duration
	// moves says that shards move, so that the fleet's status is of interest afterwards.
	moves bool
	// run runs the step and returns what was seen, for the step's last line.
	run func(ctx context.Context) (string, error)
}

// run runs the demo and returns the error of the step that failed.
func run(parent context.Context, opts options, dir string) (err error) {
	log, err := quiet(filepath.Join(dir, "demo.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, die := context.WithCancelCause(parent)
	defer die(nil)
	d := &demo{opts: opts, dir: dir, screen: newScreen(os.Stdout), die: die, tenants: tenants()}
	if err := d.place(); err != nil {
		return err
	}
	defer func() {
		if stopErr := d.stop(); stopErr != nil {
			err = errors.Join(err, stopErr)
		}
	}()
	steps := d.steps(ctx)
	for i, s := range steps {
		if err := d.do(ctx, fmt.Sprintf("[%2d/%d]", i+1, len(steps)), s); err != nil {
			if parent.Err() != nil {
				return errInterrupted
			}
			return err
		}
	}
	d.screen.printf("\nAll %d steps happened, in %v.", len(steps), time.Since(d.screen.began).Round(time.Second))
	if opts.once {
		return nil
	}
	return d.stay(ctx, parent)
}

// place computes in advance who will own what, because that depends only on the names.
func (d *demo) place() error {
	var err error
	if d.plan, err = catalogue.DefaultPlan(d.opts.shards); err != nil {
		return err
	}
	members := d.opts.members()
	if d.owned, err = owners(d.plan, members, members); err != nil {
		return err
	}
	d.victim = busiest(d.plan, d.owned, namespaces)
	if d.left, err = owners(d.plan, members, without(members, d.victim)); err != nil {
		return err
	}
	d.moved = byOwner(d.plan, d.owned, namespaces)[d.victim]
	return nil
}

// do runs one step and prints how long it took.
func (d *demo) do(ctx context.Context, number string, s step) error {
	d.screen.printf("\n%s %s\n        expected within %v: %s", number, s.title, short(s.limit), s.expect)
	began := time.Now()
	stepCtx, cancel := context.WithTimeoutCause(ctx, s.limit, errLimit)
	defer cancel()
	seen, err := s.run(stepCtx)
	// The loss of a replica explains any other failure, and must be reported even without one.
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return fmt.Errorf("in step %s %s\nexpected within %v: %s\nafter %.1f s: %w",
			number, s.title, short(s.limit), s.expect, time.Since(began).Seconds(), err)
	}
	d.screen.printf("        done in %.1f s: %s", time.Since(began).Seconds(), seen)
	if s.moves {
		d.screen.showStatus(d.observer.view().fleet())
	}
	return nil
}

// short omits the seconds of a duration of whole minutes.
func short(d time.Duration) string {
	if minutes, whole := strings.CutSuffix(d.String(), "m0s"); whole {
		return minutes + "m"
	}
	return d.String()
}

// stay leaves everything running until ctx ends.
func (d *demo) stay(ctx, parent context.Context) error {
	d.screen.printf(`
It goes on running until you press Ctrl-C. In another terminal:

  export KUBECONFIG=%[1]s
  bin/flotilla status
  bin/flotilla events --watch
  bin/flotilla explain deployment/%[2]s -n %[3]s
  bin/flotilla drain %[4]s
  bin/kubectl get deployments -A
  bin/kubectl scale deployment %[2]s -n %[3]s --replicas=9

Logs of all processes and the audit log, which grows by a quarter of a gigabyte an hour: %[5]s`, d.cp.AdminKubeconfig(), appName, d.moved[0], d.victim, d.cp.Dir())
	<-ctx.Done()
	if parent.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// stop stops everything that was started. It returns an error for what did not stop cleanly.
func (d *demo) stop() error {
	if d.cp == nil {
		return nil
	}
	d.die(nil)
	d.drawing.Wait()
	d.screen.clear()
	return errors.Join(d.leave(), d.cp.Stop())
}

// leave stops the replicas while the API server runs, so that they can release what they hold.
func (d *demo) leave() error {
	if d.replicas == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveLimit)
	defer cancel()
	began := time.Now()
	if err := d.replicas.stop(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	list, err := d.client.CoordinationV1().Leases(leaseNamespace).List(ctx, metav1.ListOptions{LabelSelector: leaseSelector})
	if err != nil {
		return err
	}
	held := map[string]int{}
	for _, lease := range list.Items {
		if holder := leaserecord.From(&lease).Holder; holder != "" && holder != d.killed.incarnation {
			held[holder]++
		}
	}
	if len(held) > 0 {
		return fmt.Errorf("the replicas have ended and still hold Leases: %s", joinCounts(held))
	}
	d.screen.printf("\nAll replicas have ended in %.1f s, and no Lease has a holder.", took.Seconds())
	return nil
}

// draw keeps what is below the steps up to date until ctx ends.
func (d *demo) draw(ctx context.Context) {
	var fleet *status.Reading
	for ctx.Err() == nil {
		next := d.observer.next()
		v := d.observer.view()
		fleet = v.fleet().Following(fleet)
		d.screen.update(fleet, unfinished(progress(d.wanted(nil), v)))
		select {
		case <-time.After(d.screen.pause()):
		case <-ctx.Done():
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// wanted returns a copy of the tenants in these namespaces; nil means all.
func (d *demo) wanted(in []string) []tenant {
	d.mu.Lock()
	defer d.mu.Unlock()
	return tenantsIn(d.tenants, in)
}
