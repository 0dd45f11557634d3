package app

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	internal "k8s.io/controller-manager/config"
	"k8s.io/controller-manager/pkg/leadermigration"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

func TestParseGate(t *testing.T) {
	for _, tc := range []struct {
		text        string
		lease       string
		controllers []string
		fault       string
	}{
		{text: "kube-controller-manager", lease: "kube-controller-manager"},
		{text: "cloud.example.com", lease: "cloud.example.com"},
		{text: "kcm-jobs=job-controller", lease: "kcm-jobs", controllers: []string{"job-controller"}},
		{text: "kcm-jobs=job-controller,cronjob-controller", lease: "kcm-jobs", controllers: []string{"job-controller", "cronjob-controller"}},
		{text: "kcm-jobs=job", lease: "kcm-jobs", controllers: []string{"job-controller"}}, // upstream's alias
		{text: "", fault: `--gate-lease "": "" must be the name of a Lease`},
		{text: "=job-controller", fault: `"" must be the name of a Lease`},
		{text: "Kube_Controller", fault: `--gate-lease "Kube_Controller": "Kube_Controller" must be the name of a Lease`},
		{text: "kube-system/x", fault: "must be the name of a Lease"},
		{text: strings.Repeat("x", 254), fault: "must be the name of a Lease"},
		{text: "kcm-jobs=", fault: `--gate-lease "kcm-jobs=": "" is no controller`},
		{text: "kcm-jobs=job-controller,", fault: `"" is no controller`},
		{text: "kcm-jobs=job-controller, cronjob-controller", fault: `" cronjob-controller" is no controller`},
		{text: "kcm-jobs=*", fault: `"*" is no controller`},
		{text: "a=b=job-controller", fault: `"b=job-controller" is no controller`},
	} {
		g, err := parseGate(tc.text)
		switch {
		case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)):
			t.Errorf("%q: got %v, want an error with %q", tc.text, err, tc.fault)
		case tc.fault == "" && err != nil:
			t.Errorf("%q: %v", tc.text, err)
		case tc.fault == "" && (g.lease != tc.lease || !slices.Equal(g.controllers, tc.controllers)):
			t.Errorf("%q: got %+v", tc.text, g)
		}
	}
}

func TestCheckGates(t *testing.T) {
	jobs, cron := gate{lease: "kcm-jobs", controllers: []string{"job-controller"}}, gate{lease: "kcm-cron", controllers: []string{"cronjob-controller"}}
	all := gate{lease: "kube-controller-manager"}
	for name, tc := range map[string]struct {
		gates []gate
		runs  []string
		bare  string
	}{
		"no gates":             {nil, []string{"job-controller", "deployment-controller"}, ""},
		"a gate for all":       {[]gate{all}, []string{"job-controller", "deployment-controller"}, ""},
		"for all and for some": {[]gate{jobs, all}, []string{"job-controller", "deployment-controller"}, ""},
		"covered":              {[]gate{jobs}, []string{"job-controller"}, ""},
		"covered by two":       {[]gate{jobs, cron}, []string{"job-controller", "cronjob-controller"}, ""},
		"covers what is off":   {[]gate{jobs, cron}, []string{"job-controller"}, ""},
		"nothing runs":         {[]gate{jobs}, nil, ""},
		"one is bare":          {[]gate{jobs}, []string{"cronjob-controller", "job-controller"}, "enables cronjob-controller, which"},
		"two are bare":         {[]gate{jobs}, []string{"a", "job-controller", "b"}, "enables a, b, which"},
	} {
		err := checkGates(tc.gates, tc.runs)
		if tc.bare == "" && err != nil || tc.bare != "" && (err == nil || !strings.Contains(err.Error(), tc.bare)) {
			t.Errorf("%s: got %v, want %q", name, err, tc.bare)
		}
	}
}

// migrationOf returns a leader migration of controllers, given as name, component, name, component.
func migrationOf(lease string, leaders ...string) *internal.LeaderMigrationConfiguration {
	m := &internal.LeaderMigrationConfiguration{LeaderName: lease, ResourceLock: "leases"}
	for i := 0; i < len(leaders); i += 2 {
		m.ControllerLeaders = append(m.ControllerLeaders, internal.ControllerLeaderConfiguration{Name: leaders[i], Component: leaders[i+1]})
	}
	return m
}

func TestMigratedBy(t *testing.T) {
	m := migrationOf("x",
		"node-ipam-controller", "kube-controller-manager",
		"job-controller", "*",
		"cronjob-controller", "cloud-controller-manager",
		"serviceaccount-token-controller", "*", // always under the main Lease
		"route-controller", "*", // none of the catalogue
		"job", "cloud-controller-manager") // an alias, which upstream does not resolve here
	if got, want := migratedBy(m, leadermigration.ControllerMigrated), []string{"job-controller", "node-ipam-controller"}; !slices.Equal(got, want) {
		t.Errorf("migrated: %v, want %v", got, want)
	}
	if got, want := migratedBy(m, leadermigration.ControllerUnowned), []string{"cronjob-controller"}; !slices.Equal(got, want) {
		t.Errorf("left to others: %v, want %v", got, want)
	}
	m.ControllerLeaders[3].Component = "cloud-controller-manager"
	if got := migratedBy(m, leadermigration.ControllerUnowned); slices.Contains(got, "serviceaccount-token-controller") {
		t.Errorf("left to others: %v, and the stock controller manager runs it whatever the configuration says", got)
	}
	if got := migratedBy(nil, leadermigration.ControllerMigrated); got != nil {
		t.Errorf("without a migration: %v", got)
	}
	if got := migratedBy(migrationOf("x"), leadermigration.ControllerMigrated); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}

func TestGates(t *testing.T) {
	var all []string
	for _, row := range catalogue.All() {
		all = append(all, row.Name)
	}
	jobs := []string{"job-controller"}
	endpoints := migrationOf("kcm-jobs", "job-controller", "*")
	endpoints.ResourceLock = "endpoints"
	for name, tc := range map[string]struct {
		flags     []string
		migration *internal.LeaderMigrationConfiguration
		runs      []string
		want      []gate
		fault     string
	}{
		"none":                      {runs: all},
		"the stock Lease":           {flags: []string{"kube-controller-manager"}, runs: all, want: []gate{{lease: "kube-controller-manager"}}},
		"a migration comes last":    {flags: []string{"z", "a"}, migration: migrationOf("m", "job-controller", "*"), runs: all, want: []gate{{lease: "z"}, {lease: "a"}, {lease: "m", controllers: jobs}}},
		"a migration alone":         {migration: migrationOf("m", "job-controller", "*"), runs: all, want: []gate{{lease: "m", controllers: jobs}}},
		"a migration of nothing":    {migration: migrationOf("m", "route-controller", "*"), runs: all},
		"one Lease, twice":          {flags: []string{"x=job-controller", "x=cronjob-controller"}, runs: jobs, want: []gate{{lease: "x", controllers: []string{"job-controller", "cronjob-controller"}}}},
		"one Lease, for all":        {flags: []string{"x=job-controller", "x"}, runs: all, want: []gate{{lease: "x"}}},
		"the migration's Lease too": {flags: []string{"m"}, migration: migrationOf("m", "job-controller", "*"), runs: all, want: []gate{{lease: "m"}}},
		"not covered":               {flags: []string{"x=job-controller"}, runs: []string{"job-controller", "cronjob-controller"}, fault: "enables cronjob-controller"},
		"covered by the migration":  {flags: []string{"x=cronjob-controller"}, migration: migrationOf("m", "job-controller", "*"), runs: []string{"job-controller", "cronjob-controller"}, want: []gate{{lease: "x", controllers: []string{"cronjob-controller"}}, {lease: "m", controllers: jobs}}},
		"another lock":              {migration: endpoints, runs: all, fault: `resourceLock "endpoints"`},
		"the fleet's own Lease":     {migration: migrationOf("flotilla-plan", "job-controller", "*"), runs: all, fault: `leaderName "flotilla-plan"`},
	} {
		o, err := NewOptions()
		if err != nil {
			t.Fatal(err)
		}
		o.Fleet.Gates = tc.flags
		got, err := o.gates(tc.migration, tc.runs)
		switch {
		case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)):
			t.Errorf("%s: got %v, want an error with %q", name, err, tc.fault)
		case tc.fault == "" && (err != nil || !reflect.DeepEqual(got, tc.want)):
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, tc.want)
		}
	}
}

func TestGateFlagsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		gate    string
		elect   bool
		want    string
		rejects bool
	}{
		{"kube-controller-manager", true, "", false},
		{"kube-controller-manager", false, "--leader-elect", true},
		{"flotilla-plan", true, "the fleet's own Leases", true},
		{"flotilla", true, "", false},
	} {
		o, err := NewOptions()
		if err != nil {
			t.Fatal(err)
		}
		o.Fleet.Member, o.Fleet.Gates, o.Generic.LeaderElection.LeaderElect = "m", []string{tc.gate}, tc.elect
		err = o.Validate()
		if tc.rejects != (err != nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: got %v", tc, err)
		}
	}
}
