package calibrate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/test/command"
)

const (
	// tick is the duration of timers and the pause between two writes, so that measuring does not
	// load the machine.
	tick = 10 * time.Millisecond
	// fewest is the least number of writes whose p99 is not their maximum.
	fewest = 101
)

// Machine is how slow a machine is, under its current load.
type Machine struct {
	// Write is the p99 of a write to the API server, Timer that of a timer's lateness.
	Write, Timer time.Duration
}

// String returns both figures.
func (m Machine) String() string {
	return fmt.Sprintf("a write takes %v and a timer is %v late (p99)", millis(m.Write), millis(m.Timer))
}

// Slower returns the greater of both figures.
func (m Machine) Slower(other Machine) Machine {
	return Machine{Write: max(m.Write, other.Write), Timer: max(m.Timer, other.Timer)}
}

// Measure writes in sequence for the given time, and until there are enough writes, and measures
// timers meanwhile. An error of write ends it.
func Measure(ctx context.Context, lasts time.Duration, write func(context.Context) error) (Machine, error) {
	timing, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	var late []time.Duration
	group.Go(func() { late = lateness(timing) })
	took, err := durations(ctx, lasts, write)
	stop()
	group.Wait()
	if err != nil {
		return Machine{}, fmt.Errorf("calibrate: after %d writes: %w", len(took), err)
	}
	return Machine{Write: p99(took), Timer: p99(late)}, nil
}

// lease is the Lease for the measurement. Nobody holds it, and no fleet looks at its namespace.
const lease = "calibration"

// Writes returns a write for Measure: of a Lease in the namespace default.
func Writes(client kubernetes.Interface) func(context.Context) error {
	leases := client.CoordinationV1().Leases(metav1.NamespaceDefault)
	return func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
		_, err := leases.Patch(ctx, lease, types.MergePatchType, patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			return err
		}
		_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: lease}}, metav1.CreateOptions{})
		return err
	}
}

// durations returns how long each write took.
func durations(ctx context.Context, lasts time.Duration, write func(context.Context) error) ([]time.Duration, error) {
	var took []time.Duration
	for began := time.Now(); time.Since(began) < lasts || len(took) < fewest; {
		before := time.Now()
		if err := write(ctx); err != nil {
			return took, err
		}
		took = append(took, time.Since(before))
		if !command.Pause(ctx, tick) {
			return took, context.Cause(ctx)
		}
	}
	return took, nil
}

// lateness returns how late each timer was, until ctx ends.
func lateness(ctx context.Context) []time.Duration {
	var late []time.Duration
	for {
		before := time.Now()
		if !command.Pause(ctx, tick) {
			return late
		}
		late = append(late, time.Since(before)-tick)
	}
}

// p99 returns the least duration that 99 percent do not exceed; 0 if there are none.
func p99(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)*99+99)/100-1]
}

func millis(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
