package status

import (
	"slices"
	"strings"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
)

// GateView is a Lease of somebody else's, usually the one that a stock kube-controller-manager leads by. The fleet works only
// while it holds all of its gates.
type GateView struct {
	Lease string `json:"lease"`
	// Holder is what the Lease says; empty if nobody holds it, or there is no such Lease.
	Holder string `json:"holder,omitempty"`
	// Held is set if the fleet holds it.
	Held bool `json:"held"`
	// Since is when the holder acquired it, Renewed when it renewed it last, both by the holder's clock.
	Since   *time.Time `json:"since,omitempty"`
	Renewed *time.Time `json:"renewed,omitempty"`
	// Silent is set if the holder has not renewed it for longer than its duration, as far as clocks tell.
	Silent bool `json:"silent,omitempty"`

	silence time.Duration // since it was renewed; 0 if that is not known
}

// elsewhere reports whether somebody else holds the gate.
func (g GateView) elsewhere() bool { return g.Holder != "" && !g.Held }

// Gates returns the gates that live members wait for, in the members' order.
func (r *Reading) Gates() []GateView {
	var names []string
	for _, m := range r.Roster.Members() {
		for name := range strings.SplitSeq(m.Annotations[leaseapi.GatesAnnotation], ",") {
			if name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	var gates []GateView
	for _, name := range names {
		o, foreign := r.foreign[name]
		if !foreign {
			o = r.leases[name] // its name begins as those of the fleet do
		}
		g := GateView{Lease: name, Holder: o.Holder, Held: o.Holder == fleet.GateIdentity(r.Fleet)}
		if g.Holder != "" {
			g.Since, g.Renewed, g.Silent = Stamp(o.AcquireTime), Stamp(o.RenewTime), o.Expired(r.AsOf, 0)
			if g.Renewed != nil {
				g.silence = max(0, r.AsOf.Sub(o.Seen))
			}
		}
		gates = append(gates, g)
	}
	return gates
}

// WaitsFor returns the first gate that somebody else holds; nil if there is none.
func (r *Reading) WaitsFor() *GateView {
	gates := r.Gates()
	if i := slices.IndexFunc(gates, GateView.elsewhere); i >= 0 {
		return &gates[i]
	}
	return nil
}

// waits tells of a gate that somebody else holds. That is as it should be while that somebody works.
func (f *finder) waits() {
	g := f.r.gate
	if g == nil {
		return
	}
	if !g.Silent {
		if f.r.stop.stops() {
			return // as the finding says that tells of the stop
		}
		f.add(Note, WaitingAtGate, AboutLease, g.Lease, g.Since,
			"the fleet waits at its gate: Lease %s is held by %s, renewed %s ago, who runs the controllers; the fleet begins when it is released", g.Lease, Plain(g.Holder), Short(g.silence))
		return
	}
	f.add(severityFor(g.silence), GateWithoutHolder, AboutLease, g.Lease, g.Renewed,
		"the fleet waits at its gate: the holder of Lease %s, %s, has not renewed it%s, unless its clock is wrong; nobody may be running the controllers", g.Lease, Plain(g.Holder), forTime(g.silence))
}
