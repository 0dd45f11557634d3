package app

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	internal "k8s.io/controller-manager/config"
	"k8s.io/controller-manager/pkg/leadermigration"
	kcm "k8s.io/kubernetes/cmd/kube-controller-manager/app"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

// component is how the leader migration's configuration names the controller manager.
const migrationComponent = "kube-controller-manager"

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

// gates returns the gates that the flags ask for: those of --gate-lease, and the Lease of a leader migration.
func (o *Options) gates(migration *internal.LeaderMigrationConfiguration) ([]gate, error) {
	var all []gate
	for _, text := range o.Fleet.Gates {
		g, err := parseGate(text)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	if migration != nil {
		if migrated := migratedBy(migration, leadermigration.ControllerMigrated); len(migrated) > 0 {
			all = append(all, gate{lease: migration.LeaderName, controllers: migrated})
		}
	}
	return all, nil
}

// migratedBy returns the controllers of the catalogue that the leader migration leaves to this component in this way, sorted.
func migratedBy(migration *internal.LeaderMigrationConfiguration, how leadermigration.FilterResult) []string {
	var names []string
	if migration == nil {
		return nil
	}
	filter := leadermigration.NewLeaderMigrator(migration, migrationComponent).FilterFunc
	for _, row := range catalogue.All() {
		if filter(row.Name) == how {
			names = append(names, row.Name)
		}
	}
	return names
}

// checkGates returns an error for controllers that this process would run and that no gate covers, where there are gates: a
// stock controller manager could run them as well.
func checkGates(gates []gate, runs []string) error {
	if len(gates) == 0 || slices.ContainsFunc(gates, func(g gate) bool { return len(g.controllers) == 0 }) {
		return nil
	}
	var bare []string
	for _, name := range runs {
		if !slices.ContainsFunc(gates, func(g gate) bool { return slices.Contains(g.controllers, name) }) {
			bare = append(bare, name)
		}
	}
	if len(bare) > 0 {
		return fmt.Errorf("--controllers enables %s, which no --gate-lease covers: name them there, or disable them here", strings.Join(bare, ", "))
	}
	return nil
}
