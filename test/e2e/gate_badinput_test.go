package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// TestBadGatesAreRefused is TestBadInputIsRefused for gates and leader migrations.
func TestBadGatesAreRefused(t *testing.T) {
	t.Parallel()
	plane := startPlane(t, controlplane.Options{})
	migration := func(version, text string) []string {
		file := filepath.Join(t.TempDir(), "migration.yaml")
		if err := os.WriteFile(file, []byte("apiVersion: controllermanager.config.k8s.io/"+version+"\nkind: LeaderMigrationConfiguration\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"--enable-leader-migration", "--leader-migration-config=" + file}
	}
	jobs := "controllerLeaders: [{name: job-controller, component: '*'}]\n"
	for _, test := range []struct {
		name  string
		flags []string
		// want must all be in one line of the output, where quotes are escaped.
		want []string
	}{
		{"empty", []string{"--gate-lease="}, []string{`--gate-lease \"\"`, "must be the name of a Lease"}},
		{"junk name", []string{"--gate-lease=Kube_Controller Manager"}, []string{`--gate-lease \"Kube_Controller Manager\"`, "must be the name of a Lease", "RFC 1123"}},
		{"no name", []string{"--gate-lease==job-controller"}, []string{`--gate-lease \"=job-controller\"`, "must be the name of a Lease"}},
		{"path", []string{"--gate-lease=kube-system/kube-controller-manager"}, []string{`--gate-lease \"kube-system/kube-controller-manager\"`, "must be the name of a Lease"}},
		{"no controllers", []string{"--gate-lease=kcm-jobs="}, []string{`--gate-lease \"kcm-jobs=\"`, `\"\" is no controller`}},
		{"unknown controller", []string{"--gate-lease=kcm-jobs=jobs-controller"}, []string{`--gate-lease \"kcm-jobs=jobs-controller\"`, `\"jobs-controller\" is no controller`, "flotilla controllers"}},
		{"second is bad", []string{"--gate-lease=kube-controller-manager", "--gate-lease=*"}, []string{`--gate-lease \"*\"`, "must be the name of a Lease"}},
		{"not covered", []string{"--controllers=job-controller,cronjob-controller", "--gate-lease=kcm-jobs=job-controller"}, []string{"--controllers enables cronjob-controller", "no --gate-lease covers"}},
		{"all but one", []string{"--gate-lease=kcm-jobs=job-controller"}, []string{"--controllers enables", "deployment-controller", "no --gate-lease covers"}},
		{"own Lease", []string{"--gate-lease=flotilla-plan"}, []string{`--gate-lease \"flotilla-plan\"`, "the fleet's own Leases", "--fleet-name"}},
		{"without election", []string{"--gate-lease=kube-controller-manager", "--leader-elect=false"}, []string{`--gate-lease \"kube-controller-manager\"`, "--leader-elect"}},
		{"unreadable migration", []string{"--enable-leader-migration", "--leader-migration-config=/nowhere/m.yaml"}, []string{"leader migration configuration", "/nowhere/m.yaml"}},
		{"migration by endpoints", migration("v1beta1", "leaderName: kcm-jobs\nresourceLock: endpoints\n"+jobs), []string{"--leader-migration-config", `resourceLock \"endpoints\"`, "leases"}},
		{"migration by own Lease", migration("v1", "leaderName: flotilla-plan\n"+jobs), []string{"--leader-migration-config", `leaderName \"flotilla-plan\"`, "the fleet's own Leases"}},
		{"migration not covered", append(migration("v1", "leaderName: kcm-jobs\n"+jobs), "--gate-lease=kcm-cronjobs=cronjob-controller"), []string{"--controllers enables", "deployment-controller", "no --gate-lease covers"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := startMember(t, plane, "m-"+strings.ToLower(strings.ReplaceAll(test.name, " ", "-")), test.flags...)
			if code := m.exit(t, patience); code == 0 {
				t.Error("ended with status 0")
			}
			if !hasLine(m.log(t), test.want...) {
				t.Errorf("no line of the output has %q:\n%s", test.want, m.log(t))
			}
		})
	}
}
