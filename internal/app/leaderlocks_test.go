package app

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	internal "k8s.io/controller-manager/config"
	"k8s.io/controller-manager/pkg/leadermigration"
	"k8s.io/kubernetes/pkg/features"

	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

func TestParseLeaderLock(t *testing.T) {
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
		{text: "kcm-jobs=job", lease: "kcm-jobs", controllers: []string{"job-controller"}}, // Upstream's alias.
		{text: "", fault: `--leader-lock "": "" must be the name of a Lease`},
		{text: "=job-controller", fault: `"" must be the name of a Lease`},
		{text: "Kube_Controller", fault: `--leader-lock "Kube_Controller": "Kube_Controller" must be the name of a Lease`},
		{text: "kube-system/x", fault: "must be the name of a Lease"},
		{text: strings.Repeat("x", 254), fault: "must be the name of a Lease"},
		{text: "kcm-jobs=", fault: `--leader-lock "kcm-jobs=": "" is no controller`},
		{text: "kcm-jobs=job-controller,", fault: `"" is no controller`},
		{text: "kcm-jobs=job-controller, cronjob-controller", fault: `" cronjob-controller" is no controller`},
		{text: "kcm-jobs=*", fault: `"*" is no controller`},
		{text: "a=b=job-controller", fault: `"b=job-controller" is no controller`},
	} {
		l, err := parseLeaderLock(tc.text)
		switch {
		case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)):
			t.Errorf("%q: got %v, want an error with %q", tc.text, err, tc.fault)
		case tc.fault == "" && err != nil:
			t.Errorf("%q: %v", tc.text, err)
		case tc.fault == "" && (l.lease != tc.lease || !slices.Equal(l.controllers, tc.controllers)):
			t.Errorf("%q: got %+v", tc.text, l)
		}
	}
}

func TestCheckLeaderLocks(t *testing.T) {
	jobs, cron := leaderLock{lease: "kcm-jobs", controllers: []string{"job-controller"}}, leaderLock{lease: "kcm-cron", controllers: []string{"cronjob-controller"}}
	all := leaderLock{lease: "kube-controller-manager"}
	for name, tc := range map[string]struct {
		leaderLocks []leaderLock
		runs        []string
		bare        string
	}{
		"no leader locks":       {nil, []string{"job-controller", "deployment-controller"}, ""},
		"a leader lock for all": {[]leaderLock{all}, []string{"job-controller", "deployment-controller"}, ""},
		"for all and for some":  {[]leaderLock{jobs, all}, []string{"job-controller", "deployment-controller"}, ""},
		"covered":               {[]leaderLock{jobs}, []string{"job-controller"}, ""},
		"covered by two":        {[]leaderLock{jobs, cron}, []string{"job-controller", "cronjob-controller"}, ""},
		"covers what is off":    {[]leaderLock{jobs, cron}, []string{"job-controller"}, ""},
		"nothing runs":          {[]leaderLock{jobs}, nil, ""},
		"tokens":                {[]leaderLock{jobs}, []string{"job-controller", "serviceaccount-token-controller"}, ""},
		"one is bare":           {[]leaderLock{jobs}, []string{"cronjob-controller", "job-controller"}, "enables cronjob-controller, which"},
		"two are bare":          {[]leaderLock{jobs}, []string{"a", "job-controller", "b"}, "enables a, b, which"},
	} {
		err := checkLeaderLocks(tc.leaderLocks, tc.runs)
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
		"serviceaccount-token-controller", "*", // Always under the main Lease.
		"route-controller", "*", // Not in the catalogue.
		"job", "cloud-controller-manager") // An alias, which upstream does not resolve here.
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

func TestLeaderLocks(t *testing.T) {
	var all []string
	for _, row := range catalogue.All() {
		all = append(all, row.Name)
	}
	jobs := []string{"job-controller"}
	stock, none := leaderLock{lease: "kube-controller-manager"}, []string{"none"}
	endpoints := migrationOf("kcm-jobs", "job-controller", "*")
	endpoints.ResourceLock = "endpoints"
	for name, tc := range map[string]struct {
		flags     []string
		migration *internal.LeaderMigrationConfiguration
		runs      []string
		want      []leaderLock
		fault     string
	}{
		"by default":                {runs: all, want: []leaderLock{stock}},
		"none":                      {flags: none, runs: all},
		"the stock Lease":           {flags: []string{"kube-controller-manager"}, runs: all, want: []leaderLock{stock}},
		"another Lease":             {flags: []string{"x"}, runs: all, want: []leaderLock{{lease: "x"}}},
		"a migration comes last":    {flags: []string{"z", "a"}, migration: migrationOf("m", "job-controller", "*"), runs: all, want: []leaderLock{{lease: "z"}, {lease: "a"}, {lease: "m", controllers: jobs}}},
		"a migration too":           {migration: migrationOf("m", "job-controller", "*"), runs: all, want: []leaderLock{stock, {lease: "m", controllers: jobs}}},
		"a migration alone":         {flags: none, migration: migrationOf("m", "job-controller", "*"), runs: all, want: []leaderLock{{lease: "m", controllers: jobs}}},
		"a migration of nothing":    {migration: migrationOf("m", "route-controller", "*"), runs: all, want: []leaderLock{stock}},
		"one Lease, twice":          {flags: []string{"x=job-controller", "x=cronjob-controller"}, runs: jobs, want: []leaderLock{{lease: "x", controllers: []string{"job-controller", "cronjob-controller"}}}},
		"one Lease, for all":        {flags: []string{"x=job-controller", "x"}, runs: all, want: []leaderLock{{lease: "x"}}},
		"the migration's Lease too": {flags: []string{"m"}, migration: migrationOf("m", "job-controller", "*"), runs: all, want: []leaderLock{{lease: "m"}}},
		"not covered":               {flags: []string{"x=job-controller"}, runs: []string{"job-controller", "cronjob-controller"}, fault: "enables cronjob-controller"},
		"covered by the migration":  {flags: []string{"x=cronjob-controller"}, migration: migrationOf("m", "job-controller", "*"), runs: []string{"job-controller", "cronjob-controller"}, want: []leaderLock{{lease: "x", controllers: []string{"cronjob-controller"}}, {lease: "m", controllers: jobs}}},
		"another lock":              {migration: endpoints, runs: all, fault: `resourceLock "endpoints"`},
		"the fleet's own Lease":     {migration: migrationOf("flotilla-plan", "job-controller", "*"), runs: all, fault: `leaderName "flotilla-plan"`},
	} {
		o, err := NewOptions()
		if err != nil {
			t.Fatal(err)
		}
		o.Fleet.LeaderLocks = tc.flags
		got, err := o.leaderLocks(tc.migration, tc.runs)
		switch {
		case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)):
			t.Errorf("%s: got %v, want an error with %q", name, err, tc.fault)
		case tc.fault == "" && (err != nil || !reflect.DeepEqual(got, tc.want)):
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, tc.want)
		}
	}
}

// TestTokensAreLeft: a fleet whose leader locks name its controllers runs serviceaccount-token only
// if they name it too, since the stock leader of the others runs it.
func TestTokensAreLeft(t *testing.T) {
	jobs := leaderLock{lease: "jobs", controllers: []string{"job-controller"}}
	tokens := leaderLock{lease: "tokens", controllers: []string{"serviceaccount-token-controller"}}
	for name, tc := range map[string]struct {
		flags       []string
		leaderLocks []leaderLock
		want        bool
	}{
		"by default":            {nil, []leaderLock{{lease: "kube-controller-manager"}}, false},
		"no leader lock":        {[]string{"none"}, nil, false},
		"a migration alone":     {[]string{"none"}, []leaderLock{jobs}, false},
		"a leader lock for all": {[]string{"x"}, []leaderLock{{lease: "x"}}, false},
		"for others":            {[]string{"jobs=job-controller"}, []leaderLock{jobs}, true},
		"for it too":            {[]string{"jobs=job-controller", "tokens=serviceaccount-token-controller"}, []leaderLock{jobs, tokens}, false},
	} {
		o, err := NewOptions()
		if err != nil {
			t.Fatal(err)
		}
		o.Fleet.LeaderLocks = tc.flags
		if got := o.leavesTokens(tc.leaderLocks); got != tc.want {
			t.Errorf("%s: left to others: %t, want %t", name, got, tc.want)
		}
	}
}

func TestLeaderLockFlagsAreChecked(t *testing.T) {
	const own = "the fleet's own Leases"
	for name, tc := range map[string]struct {
		leaderLocks []string
		change      func(*Options)
		faults      []string
	}{
		"by default":                      {},
		"the stock Lease":                 {leaderLocks: []string{"kube-controller-manager"}},
		"none":                            {leaderLocks: []string{"none"}},
		"none and others":                 {leaderLocks: []string{"x", "none", "y"}, faults: []string{`--leader-lock "none": must be the only one, not beside ["x" "y"]`}},
		"like the fleet":                  {leaderLocks: []string{"flotilla"}},
		"the fleet's own":                 {leaderLocks: []string{"flotilla-plan"}, faults: []string{`--leader-lock "flotilla-plan"`, own}},
		"without election":                {leaderLocks: []string{"x"}, change: withoutElection, faults: []string{`--leader-lock "x"`, "--leader-elect"}},
		"no leader lock without election": {change: withoutElection},
		"none without election":           {leaderLocks: []string{"none"}, change: withoutElection},
		"own by default":                  {change: func(o *Options) { o.Fleet.Name = "kube" }, faults: []string{`--leader-elect-resource-name "kube-controller-manager"`, own, "--fleet-name"}},
		"own by default, and none":        {leaderLocks: []string{"none"}, change: func(o *Options) { o.Fleet.Name = "kube" }},
		"own by default, and another":     {leaderLocks: []string{"x"}, change: func(o *Options) { o.Fleet.Name = "kube" }},
		"no name":                         {change: func(o *Options) { o.Generic.LeaderElection.ResourceName = "a/b" }, faults: []string{`--leader-elect-resource-name "a/b": must be the name of a Lease`}},
		"another lock":                    {change: func(o *Options) { o.Generic.LeaderElection.ResourceLock = "endpoints" }, faults: []string{`--leader-elect-resource-lock "endpoints": must be "leases"`}},
	} {
		t.Run(name, func(t *testing.T) {
			requireFaults(t, tc.leaderLocks, tc.change, tc.faults...)
		})
	}
}

func withoutElection(o *Options) { o.Generic.LeaderElection.LeaderElect = false }

// requireFaults fails unless options with these leader locks are refused for these faults, or
// accepted if there are none.
func requireFaults(t *testing.T, leaderLocks []string, change func(*Options), faults ...string) {
	t.Helper()
	o, err := NewOptions()
	if err != nil {
		t.Fatal(err)
	}
	o.Fleet.Member, o.Fleet.LeaderLocks = "m", leaderLocks
	if change != nil {
		change(o)
	}
	err = o.Validate()
	if (err != nil) != (len(faults) > 0) {
		t.Errorf("got %v, want %q", err, faults)
	}
	for _, fault := range faults {
		if err != nil && !strings.Contains(err.Error(), fault) {
			t.Errorf("got %v, want %q in it", err, fault)
		}
	}
}

// A member acquires its leader lock by itself. An API server cannot choose it as a candidate.
func TestCoordinatedElectionIsRefused(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.CoordinatedLeaderElection, true)
	for name, tc := range map[string]struct {
		leaderLocks []string
		change      func(*Options)
		refused     bool
	}{
		"by default":          {refused: true},
		"another leader lock": {leaderLocks: []string{"x"}, refused: true},
		"no leader lock":      {leaderLocks: []string{"none"}},
		"without election":    {change: withoutElection},
	} {
		t.Run(name, func(t *testing.T) {
			var faults []string
			if tc.refused {
				faults = []string{"--feature-gates=CoordinatedLeaderElection=true: must be false"}
			}
			requireFaults(t, tc.leaderLocks, tc.change, faults...)
		})
	}
}
