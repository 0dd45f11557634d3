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

// noLeaderLock is the value of --leader-lock for a fleet that holds no Lease of an election while
// it runs.
const noLeaderLock = "none"

// leaderLock is a foreign Lease that the fleet holds while it runs.
type leaderLock struct {
	lease string
	// controllers are those that run under the Lease elsewhere; none for all.
	controllers []string
}

// parseLeaderLock reads NAME or NAME=CONTROLLER,CONTROLLER...
func parseLeaderLock(text string) (leaderLock, error) {
	name, list, some := strings.Cut(text, "=")
	l := leaderLock{lease: name}
	if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
		return l, fmt.Errorf("--leader-lock %q: %q must be the name of a Lease: %s", text, name, strings.Join(faults, "; "))
	}
	if !some {
		return l, nil
	}
	aliases := kcm.ControllerAliases()
	for _, c := range strings.Split(list, ",") {
		if full, ok := aliases[c]; ok {
			c = full
		}
		if _, known := catalogue.Lookup(c); !known {
			return l, fmt.Errorf("--leader-lock %q: %q is no controller; 'flotilla controllers' lists them", text, c)
		}
		l.controllers = append(l.controllers, c)
	}
	return l, nil
}

// usesLeaderLock reports whether the flags ask for a leader lock.
func (o *Options) usesLeaderLock() bool {
	return o.Generic.LeaderElection.LeaderElect && !slices.Contains(o.Fleet.LeaderLocks, noLeaderLock)
}

// leaderLocksAsked returns the leader locks that the flags ask for: those of --leader-lock in
// order, or without that flag the Lease with which the stock controller manager would lead.
func (o *Options) leaderLocksAsked() ([]leaderLock, error) {
	switch {
	case !o.usesLeaderLock():
		return nil, nil
	case len(o.Fleet.LeaderLocks) == 0:
		return []leaderLock{{lease: o.Generic.LeaderElection.ResourceName}}, nil
	}
	var all []leaderLock
	for _, text := range o.Fleet.LeaderLocks {
		l, err := parseLeaderLock(text)
		if err != nil {
			return nil, err
		}
		all = addLeaderLock(all, l)
	}
	return all, nil
}

// checkLeaderLockFlags returns the faults of --leader-lock, and of upstream's flags that name the
// leader lock without it.
func (o *Options) checkLeaderLockFlags() []error {
	errs := o.checkElection()
	if slices.Contains(o.Fleet.LeaderLocks, noLeaderLock) {
		if len(o.Fleet.LeaderLocks) > 1 {
			errs = append(errs, fmt.Errorf("--leader-lock %q: must be the only one, not beside %q", noLeaderLock, slices.DeleteFunc(slices.Clone(o.Fleet.LeaderLocks), func(text string) bool { return text == noLeaderLock })))
		}
		return errs
	}
	for _, text := range o.Fleet.LeaderLocks {
		l, err := parseLeaderLock(text)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !o.Generic.LeaderElection.LeaderElect:
			errs = append(errs, fmt.Errorf("--leader-lock %q: needs --leader-elect, without which no Lease is held", text))
		case o.ownLease(l.lease):
			errs = append(errs, fmt.Errorf("--leader-lock %q: names that begin with %q are those of the fleet's own Leases, see --fleet-name", text, o.Fleet.Name+"-"))
		}
	}
	return errs
}

// checkElection returns what keeps the fleet from holding the Lease with which the stock controller
// manager would lead.
func (o *Options) checkElection() []error {
	if !o.usesLeaderLock() {
		return nil
	}
	var errs []error
	name := o.Generic.LeaderElection.ResourceName
	if len(o.Fleet.LeaderLocks) == 0 {
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

// leaderLocks returns all leader locks, each Lease once: those that the flags ask for, and the
// Lease of a leader migration, last as with the stock controller manager. runs are the controllers
// that this process would run.
func (o *Options) leaderLocks(migration *internal.LeaderMigrationConfiguration, runs []string) ([]leaderLock, error) {
	all, err := o.leaderLocksAsked()
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
		all = addLeaderLock(all, leaderLock{lease: migration.LeaderName, controllers: migrated})
	}
	// A leader migration alone says nothing about controllers that it does not name.
	if !o.usesLeaderLock() {
		return all, nil
	}
	return all, checkLeaderLocks(all, runs)
}

// addLeaderLock adds a leader lock's controllers to those that its Lease covers already.
func addLeaderLock(all []leaderLock, l leaderLock) []leaderLock {
	i := slices.IndexFunc(all, func(other leaderLock) bool { return other.lease == l.lease })
	switch {
	case i < 0:
		return append(all, l)
	case len(all[i].controllers) == 0 || len(l.controllers) == 0:
		all[i].controllers = nil
	default:
		all[i].controllers = append(slices.Clone(all[i].controllers), l.controllers...)
	}
	return all
}

// migratedBy returns the controllers of the catalogue that the leader migration leaves to this
// component in this way, sorted. The controller of service account tokens is never among them: the
// stock controller manager runs it under its main Lease, whatever the configuration says.
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

// leavesTokens reports whether serviceaccount-token is left to another Lease's leader:
// --leader-lock names the controllers of this fleet, without this one. Otherwise it runs whatever
// --controllers says, as with the stock controller manager.
func (o *Options) leavesTokens(leaderLocks []leaderLock) bool {
	return o.usesLeaderLock() && !covered(leaderLocks, names.ServiceAccountTokenController)
}

// covered reports whether a leader lock covers the controller.
func covered(leaderLocks []leaderLock, controller string) bool {
	return slices.ContainsFunc(leaderLocks, func(l leaderLock) bool { return len(l.controllers) == 0 || slices.Contains(l.controllers, controller) })
}

// checkLeaderLocks returns an error for controllers that this process would run and that no leader
// lock covers, if there are leader locks: a stock controller manager could run them as well.
func checkLeaderLocks(leaderLocks []leaderLock, runs []string) error {
	if len(leaderLocks) == 0 || slices.ContainsFunc(leaderLocks, func(l leaderLock) bool { return len(l.controllers) == 0 }) {
		return nil
	}
	var bare []string
	for _, name := range runs {
		// Nobody can disable serviceaccount-token by --controllers: see leavesTokens.
		if name != names.ServiceAccountTokenController && !covered(leaderLocks, name) {
			bare = append(bare, name)
		}
	}
	if len(bare) > 0 {
		return fmt.Errorf("--controllers enables %s, which no --leader-lock covers: name them there, or disable them here", strings.Join(bare, ", "))
	}
	return nil
}
