package sim

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// tamper changes a Lease as an operator or a foreign controller might.
func (sim *simulation) tamper() {
	names := sim.leases()
	if sim.leaderLocks {
		names = append(names, stockLease)
	}
	name := names[sim.random.IntN(len(names))]
	var change func(*coordinationv1.Lease)
	what := ""
	disturbing := false
	switch sim.random.IntN(9) {
	case 0, 1:
		sim.notef("somebody deletes %s", name)
		sim.touch(name)
		sim.remove(name)
		return
	case 2:
		what, disturbing = "empties", true
		change = func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity = [...]*string{nil, ptr.To("")}[sim.random.IntN(2)]
		}
	case 3:
		what, disturbing = "forges the holder of", true
		holder := leaserecord.NewIncarnation(sim.seats[sim.random.IntN(len(sim.seats))].name)
		if sim.random.IntN(3) == 0 {
			holder = "somebody"
		}
		change = func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = &holder }
	case 4:
		durations := []int32{-7, 0, 1, 3, 40}
		if sim.random.IntN(4) == 0 {
			durations = []int32{1 << 30}
		}
		duration := durations[sim.random.IntN(len(durations))]
		what = fmt.Sprintf("writes duration %d on", duration)
		change = func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = &duration }
	case 5:
		// Not the highest possible term, which stops all acquisitions, as documented.
		terms := []int32{-3, 0, 1, 1 << 20, 1<<31 - 1000}
		term := terms[sim.random.IntN(len(terms))]
		what, disturbing = fmt.Sprintf("writes term %d on", term), true
		change = func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = &term }
	case 6:
		what = "writes garbage annotations on"
		change = func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{
				leaserecord.NextHolderAnnotation: "\x00nobody", leaserecord.WritesAnnotation: `{"term":`, leaserecord.StateAnnotation: "?",
				leaseapi.PlanAnnotation: "another", leaseapi.RangeAnnotation: "everything", leaseapi.ReadyAnnotation: "1",
				leaseapi.DocumentAnnotation: "{}",
			}
		}
	case 7:
		what = "writes what others cover on"
		change = func(l *coordinationv1.Lease) {
			l.Annotations = map[string]string{leaseapi.RangeAnnotation: shard.Everything().String(), leaseapi.ControllersAnnotation: "cronjob-controller,endpointslice-controller,job-controller,service-controller"}
		}
	default:
		what = "strips"
		change = func(l *coordinationv1.Lease) {
			l.Labels, l.Annotations, l.Spec.RenewTime, l.Spec.AcquireTime, l.Spec.LeaseDurationSeconds = nil, nil, nil, nil, nil
		}
	}
	sim.touch(name)
	if disturbing || name == stockLease {
		sim.disturb(name)
	}
	if sim.store.Tamper(name, change) {
		sim.notef("somebody %s %s", what, name)
	}
}
