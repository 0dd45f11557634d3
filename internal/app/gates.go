package app

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	internal "k8s.io/controller-manager/config"
	"k8s.io/controller-manager/pkg/leadermigration"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/features"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// noGate is what --gate-lease says for a fleet that is to hold no Lease of an election while it
// runs.
const noGate = "none"

// gate is a foreign Lease that the fleet holds while it runs.
type gate struct {
	lease string
	// controllers are those that run under the Lease elsewhere; none for all.
	controllers []string
}

// parseGate reads NAME or NAME=CONTROLLER,CONTROLLER...
func parseGate(text string) (gate, error) {
	name, list, some := strings.Cut(text, "=")
	g := gate{lease: name}
	if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
		return g, fmt.Errorf("--gate-lease %q: %q must be the name of a Lease: %s", text, name, strings.Join(faults, "; "))
	}
	if !some {
		return g, nil
	}
	aliases := kcm.ControllerAliases()
	for _, c := range strings.Split(list, ",") {
		if full, ok := aliases[c]; ok {
			c = full
		}
		if _, known := catalogue.Lookup(c); !known {
			return g, fmt.Errorf("--gate-lease %q: %q is no controller; 'flotilla controllers' lists them", text, c)
		}
		g.controllers = append(g.controllers, c)
	}
	return g, nil
}

// isGated reports whether the flags ask for a gate.
func (o *Options) isGated() bool {
	return o.Generic.LeaderElection.LeaderElect && !slices.Contains(o.Fleet.Gates, noGate)
}

// gatesAsked returns the gates that the flags ask for: those of --gate-lease in their order, and
// without that flag the Lease that the stock controller manager would lead by.
func (o *Options) gatesAsked() ([]gate, error) {
	switch {
	case !o.isGated():
		return nil, nil
	case len(o.Fleet.Gates) == 0:
		return []gate{{lease: o.Generic.LeaderElection.ResourceName}}, nil
	}
	var all []gate
	for _, text := range o.Fleet.Gates {
		g, err := parseGate(text)
		if err != nil {
			return nil, err
		}
		all = addGate(all, g)
	}
	return all, nil
}

// checkGateFlags returns the faults of --gate-lease, and of upstream's flags that name the gate
// without it.
func (o *Options) checkGateFlags() []error {
	errs := o.checkElection()
	if slices.Contains(o.Fleet.Gates, noGate) {
		if len(o.Fleet.Gates) > 1 {
			errs = append(errs, fmt.Errorf("--gate-lease %q: must be the only one, not beside %q", noGate, slices.DeleteFunc(slices.Clone(o.Fleet.Gates), func(text string) bool { return text == noGate })))
		}
		return errs
	}
	for _, text := range o.Fleet.Gates {
		g, err := parseGate(text)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !o.Generic.LeaderElection.LeaderElect:
			errs = append(errs, fmt.Errorf("--gate-lease %q: needs --leader-elect, without which no Lease is held", text))
		case o.ownLease(g.lease):
			errs = append(errs, fmt.Errorf("--gate-lease %q: names that begin with %q are those of the fleet's own Leases, see --fleet-name", text, o.Fleet.Name+"-"))
		}
	}
	return errs
}

// checkElection returns what keeps the fleet from holding the Lease that the stock controller
// manager would lead by.
func (o *Options) checkElection() []error {
	if !o.isGated() {
		return nil
	}
	var errs []error
	name := o.Generic.LeaderElection.ResourceName
	if len(o.Fleet.Gates) == 0 {
		if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
			errs = append(errs, fmt.Errorf("--leader-elect-resource-name %q: must be the name of a Lease: %s", name, strings.Join(faults, "; ")))
		}
		if o.ownLease(name) {
			errs = append(errs, fmt.Errorf("--leader-elect-resource-name %q: names that begin with %q are those of the fleet's own Leases, see --fleet-name", name, o.Fleet.Name+"-"))
		}
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.CoordinatedLeaderElection) {
		errs = append(errs, fmt.Errorf("--feature-gates=%s=true: must be false, the default: a member takes the Lease by itself and is no candidate for an API server to choose. "+
			"API servers and stock replicas may have the feature on", features.CoordinatedLeaderElection))
	}
	return errs
}

func (o *Options) ownLease(name string) bool { return strings.HasPrefix(name, o.Fleet.Name+"-") }

// gates returns all gates, each Lease once: those that the flags ask for, and the Lease of a leader
// migration, last as with the stock controller manager. runs are the controllers that this process
// would run.
func (o *Options) gates(migration *internal.LeaderMigrationConfiguration, runs []string) ([]gate, error) {
	all, err := o.gatesAsked()
	if err != nil {
		return nil, err
	}
	if migrated := migratedBy(migration, leadermigration.ControllerMigrated); len(migrated) > 0 {
		switch {
		case migration.ResourceLock != resourcelock.LeasesResourceLock:
			return nil, fmt.Errorf("--leader-migration-config: resourceLock %q: must be %q", migration.ResourceLock, resourcelock.LeasesResourceLock)
		case o.ownLease(migration.LeaderName):
			return nil, fmt.Errorf("--leader-migration-config: leaderName %q: names that begin with %q are those of the fleet's own Leases, see --fleet-name", migration.LeaderName, o.Fleet.Name+"-")
		}
		all = addGate(all, gate{lease: migration.LeaderName, controllers: migrated})
	}
	// A leader migration alone says nothing of the controllers that it does not name.
	if !o.isGated() {
		return all, nil
	}
	return all, checkGates(all, runs)
}

// addGate adds what a gate covers to what its Lease covers already.
func addGate(all []gate, g gate) []gate {
	i := slices.IndexFunc(all, func(other gate) bool { return other.lease == g.lease })
	switch {
	case i < 0:
		return append(all, g)
	case len(all[i].controllers) == 0 || len(g.controllers) == 0:
		all[i].controllers = nil
	default:
		all[i].controllers = append(slices.Clone(all[i].controllers), g.controllers...)
	}
	return all
}

// migratedBy returns the controllers of the catalogue that the leader migration leaves to this component in this way, sorted. The
// controller of service account tokens is never among them: the stock controller manager runs it under its main Lease, whatever
// the configuration says.
func migratedBy(migration *internal.LeaderMigrationConfiguration, how leadermigration.FilterResult) []string {
	if migration == nil {
		return nil
	}
	var all []string
	filter := leadermigration.NewLeaderMigrator(migration, component).FilterFunc
	for _, row := range catalogue.All() {
		if row.Name != names.ServiceAccountTokenController && filter(row.Name) == how {
			all = append(all, row.Name)
		}
	}
	slices.Sort(all)
	return all
}

// leavesTokens reports whether serviceaccount-token is left to whoever leads by another Lease:
// --gate-lease names the controllers of this fleet, and not this one. Else it runs whatever
// --controllers says, as with the stock controller manager.
func (o *Options) leavesTokens(gates []gate) bool {
	return o.isGated() && !covered(gates, names.ServiceAccountTokenController)
}

// covered reports whether a gate stands for the controller.
func covered(gates []gate, controller string) bool {
	return slices.ContainsFunc(gates, func(g gate) bool { return len(g.controllers) == 0 || slices.Contains(g.controllers, controller) })
}

// checkGates returns an error for controllers that this process would run and that no gate covers, where there are gates: a
// stock controller manager could run them as well.
func checkGates(gates []gate, runs []string) error {
	if len(gates) == 0 || slices.ContainsFunc(gates, func(g gate) bool { return len(g.controllers) == 0 }) {
		return nil
	}
	var bare []string
	for _, name := range runs {
		// Nobody can disable serviceaccount-token by --controllers: see leavesTokens.
		if name != names.ServiceAccountTokenController && !covered(gates, name) {
			bare = append(bare, name)
		}
	}
	if len(bare) > 0 {
		return fmt.Errorf("--controllers enables %s, which no --gate-lease covers: name them there, or disable them here", strings.Join(bare, ", "))
	}
	return nil
}
