package app

import (
	internal "k8s.io/controller-manager/config"
	"k8s.io/controller-manager/pkg/leadermigration"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/flotilla-kube/flotilla/pkg/controllers"
)

// newProcess returns what all shards of this process share, and the Leases that its fleet must hold
// while it runs. It fails for anything wrong with flags and files beyond [Options.Validate], and
// contacts no server.
func newProcess(c *config.CompletedConfig, o *Options, endpoints *controllers.Endpoints) (process *controllers.Process, leaderLocks []string, err error) {
	process, err = controllers.NewProcess(c, endpoints)
	switch {
	case err != nil:
		return nil, nil, err
	case !o.Generic.LeaderElection.LeaderElect:
		return process, nil, process.Check()
	}
	var migration *internal.LeaderMigrationConfiguration
	if leadermigration.Enabled(&c.ComponentConfig.Generic) {
		migration = &c.ComponentConfig.Generic.LeaderMigration
	}
	// As in upstream, this process does not run what the migration leaves to another component.
	left := migratedBy(migration, leadermigration.ControllerUnowned)
	process.Leave(left)
	if err := process.Check(); err != nil {
		return nil, nil, err
	}
	if o.Fleet.ShareKubeAPILimits {
		process.ShareLimits()
	}
	held, err := o.leaderLocks(migration, process.Runs(allControllers()))
	if err != nil {
		return nil, nil, err
	}
	if o.leavesTokens(held) {
		process.Leave(append(left, names.ServiceAccountTokenController))
	}
	for _, l := range held {
		leaderLocks = append(leaderLocks, l.lease)
	}
	return process, leaderLocks, nil
}
