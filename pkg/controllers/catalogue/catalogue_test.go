package catalogue

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubecontrollerconfig "k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

func TestComplete(t *testing.T) {
	upstream := app.NewControllerDescriptors()
	for name := range upstream {
		if _, ok := Lookup(name); !ok {
			t.Errorf("Controller %q of upstream has no row.\n"+
				"Read its handlers and its sync function in k8s.io/kubernetes and find out what one reconcile reads and writes.\n"+
				"All in one namespace, and nothing decided from the absence of objects of others: add a row to rows_namespaced.go.\n"+
				"Otherwise, or in doubt: add one to rows_cluster.go, in the group whose informers it shares.", name)
		}
	}
	for _, row := range All() {
		if _, ok := upstream[row.Name]; ok {
			continue
		}
		if name, ok := app.ControllerAliases()[row.Name]; ok {
			t.Errorf("Row %q is named by an alias. Name it %q.", row.Name, name)
			continue
		}
		t.Errorf("Row %q is for a controller that upstream does not have. Remove it; "+
			"if upstream renamed the controller, rename the row and keep the old name known in plans.", row.Name)
	}
	if got, want := len(All()), len(upstream); got != want {
		t.Errorf("%d rows for %d controllers", got, want)
	}
}

func TestRows(t *testing.T) {
	rows := All()
	if !slices.IsSortedFunc(rows, func(a, b Row) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("All is not sorted by name")
	}
	for i, row := range rows {
		if i > 0 && rows[i-1].Name == row.Name {
			t.Errorf("%s: two rows", row.Name)
		}
		switch row.Scope {
		case ScopeNamespaced:
			if row.Group != "" {
				t.Errorf("%s: namespaced, but in group %q", row.Name, row.Group)
			}
			if row.EarlierScope != "" {
				t.Errorf("%s: namespaced, but plans may have it in a ring of scope %q", row.Name, row.EarlierScope)
			}
		case ScopeCluster:
			if !slices.Contains(Groups(), row.Group) {
				t.Errorf("%s: cluster, but its group %q is none of %v", row.Name, row.Group, Groups())
			}
			if row.EarlierScope != "" && row.EarlierScope != ScopeNamespaced {
				t.Errorf("%s: earlier scope %q", row.Name, row.EarlierScope)
			}
		default:
			t.Errorf("%s: scope %q", row.Name, row.Scope)
		}
		if len(row.Clients) == 0 {
			t.Errorf("%s: no clients", row.Name)
		}
		for what, text := range map[string]string{
			"Why": row.Why, "BuildHazards": row.BuildHazards, "RestartHazards": row.RestartHazards, "Forgets": row.Forgets,
			"ActsOutside": row.ActsOutside,
		} {
			if text != "" && !strings.HasSuffix(text, ".") || what == "Why" && text == "" {
				t.Errorf("%s: %s must be plain sentences, but is %q", row.Name, what, text)
			}
		}
		if got, ok := Lookup(row.Name); !ok || got.Why != row.Why {
			t.Errorf("%s: Lookup found %q, %v", row.Name, got.Name, ok)
		}
	}
	if _, ok := Lookup("nodeipam"); ok {
		t.Error("Lookup found an alias")
	}
}

func TestGroups(t *testing.T) {
	seen := map[string]string{}
	note := func(where string, controllers []string) {
		if len(controllers) == 0 {
			t.Errorf("%s: empty", where)
		}
		if !slices.IsSorted(controllers) {
			t.Errorf("%s: not sorted: %v", where, controllers)
		}
		for _, name := range controllers {
			if other, ok := seen[name]; ok {
				t.Errorf("%s is in %s and in %s", name, other, where)
			}
			seen[name] = where
		}
	}
	note("namespaced", Namespaced())
	for _, group := range Groups() {
		note(group, Group(group))
	}
	if len(seen) != len(All()) {
		t.Errorf("Namespaced and Groups hold %d of %d controllers", len(seen), len(All()))
	}
	for _, group := range []string{"", "namespaced", "Nodes"} {
		if got := Group(group); got != nil {
			t.Errorf("Group(%q) = %v, want none", group, got)
		}
	}
	if diff := cmp.Diff([]string{"nodes", "volumes", "garbage", "certificates", "policy"}, Groups()); diff != "" {
		t.Errorf("The names of groups are in Lease names and must not change (-want +got):\n%s", diff)
	}
}

// The garbage collector runs the graph builder, and the migrator reads its monitors.
func TestGraphBuilderNeverShared(t *testing.T) {
	groups := map[string]bool{}
	for _, row := range All() {
		if slices.Contains(row.Needs, NeedGraphBuilder) {
			groups[row.Group] = true
		}
	}
	if len(groups) != 1 || !groups[GroupGarbage] {
		t.Errorf("Controllers that need the graph builder are in groups %v, want all in %q", groups, GroupGarbage)
	}
}

// TestValuesAreTheCallers changes everything that the rows refer to.
func TestValuesAreTheCallers(t *testing.T) {
	before := fmt.Sprint(All())
	for _, row := range All() {
		found, _ := Lookup(row.Name)
		for _, r := range []Row{row, found} {
			for _, field := range reflect.ValueOf(r).Fields() {
				if field.Kind() == reflect.Slice {
					field.Clear()
				}
			}
		}
	}
	if diff := cmp.Diff(before, fmt.Sprint(All())); diff != "" {
		t.Errorf("Changes to rows are seen by the next caller (-before +after):\n%s", diff)
	}
	Groups()[0] = "changed"
	if got := Groups()[0]; got == "changed" {
		t.Error("A change to the groups is seen by the next caller")
	}
}

// Every flag for a number of workers must be the Workers of exactly one row.
func TestWorkersFollowFlags(t *testing.T) {
	want := map[string]string{
		"concurrent-cron-job-syncs":                           names.CronJobController,
		"concurrent-daemonset-syncs":                          names.DaemonSetController,
		"concurrent-deployment-syncs":                         names.DeploymentController,
		"concurrent-device-taint-eviction-syncs":              names.DeviceTaintEvictionController,
		"concurrent-disruption-syncs":                         names.DisruptionController,
		"concurrent-endpoint-syncs":                           names.EndpointsController,
		"concurrent-ephemeralvolume-syncs":                    names.EphemeralVolumeController,
		"concurrent-gc-syncs":                                 names.GarbageCollectorController,
		"concurrent-horizontal-pod-autoscaler-syncs":          names.HorizontalPodAutoscalerController,
		"concurrent-job-syncs":                                names.JobController,
		"concurrent-namespace-syncs":                          names.NamespaceController,
		"concurrent-replicaset-syncs":                         names.ReplicaSetController,
		"concurrent-resource-quota-syncs":                     names.ResourceQuotaController,
		"concurrent-resourceclaim-syncs":                      names.ResourceClaimController,
		"concurrent-service-endpoint-syncs":                   names.EndpointSliceController,
		"concurrent-serviceaccount-token-syncs":               names.ServiceAccountTokenController,
		"concurrent-statefulset-syncs":                        names.StatefulSetController,
		"concurrent-ttl-after-finished-syncs":                 names.TTLAfterFinishedController,
		"concurrent-validating-admission-policy-status-syncs": names.ValidatingAdmissionPolicyStatusController,
		"concurrent_rc_syncs":                                 names.ReplicationControllerController,
		"mirroring-concurrent-service-endpoint-syncs":         names.EndpointSliceMirroringController,
	}
	before := fields(parse(t))
	for name, values := range before {
		for _, value := range values {
			if value <= 0 {
				t.Errorf("%s: the default is %d, so the accessor cannot be right", name, value)
			}
		}
	}
	got := map[string]string{}
	for _, flag := range workerFlags(t) {
		const odd = 7919
		for name, values := range fields(parse(t, fmt.Sprintf("--%s=%d", flag, odd))) {
			if slices.Equal(values, before[name]) {
				continue
			}
			if !slices.Equal(values, []int32{odd}) {
				t.Errorf("--%s=%d gives %s %v", flag, odd, name, values)
			}
			if other, ok := got[flag]; ok {
				t.Errorf("--%s changes %s and %s", flag, other, name)
			}
			got[flag] = name
		}
		if got[flag] == "" {
			t.Errorf("--%s changes no row. If it sets a number of workers, give it to that controller's row; "+
				"if it does not, except it in this test.", flag)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Flags and the rows that follow them (-want +got):\n%s", diff)
	}
}

func TestWorkersPointIntoTheirArgument(t *testing.T) {
	for _, row := range All() {
		var a, b Config
		for _, field := range row.Workers(&a) {
			*field = 3
		}
		for _, field := range row.Workers(&b) {
			if *field != 0 {
				t.Errorf("%s: a change to one configuration is seen in another", row.Name)
			}
		}
		for _, field := range row.Workers(&a) {
			if *field != 3 {
				t.Errorf("%s: a change to the field is not seen in the configuration", row.Name)
			}
		}
	}
}

// workerFlags returns the flags that may set a number of workers.
func workerFlags(t *testing.T) []string {
	t.Helper()
	var result []string
	flags(newOptions(t)).VisitAll(func(f *pflag.Flag) {
		if f.Value.Type() == "int32" && strings.Contains(f.Name, "concurrent") {
			result = append(result, f.Name)
		}
	})
	return result
}

// fields returns the values behind the accessors of every row that has any.
func fields(c *Config) map[string][]int32 {
	result := map[string][]int32{}
	for _, row := range All() {
		for _, field := range row.Workers(c) {
			result[row.Name] = append(result[row.Name], *field)
		}
	}
	return result
}

func parse(t *testing.T, args ...string) *Config {
	t.Helper()
	o := newOptions(t)
	if err := flags(o).Parse(args); err != nil {
		t.Fatal(err)
	}
	o.SecureServing.BindPort = 0
	var c kubecontrollerconfig.Config
	if err := o.ApplyTo(&c, app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()); err != nil {
		t.Fatal(err)
	}
	return &c.ComponentConfig
}

func newOptions(t *testing.T) *options.KubeControllerManagerOptions {
	t.Helper()
	o, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func flags(o *options.KubeControllerManagerOptions) *pflag.FlagSet {
	all := pflag.NewFlagSet("upstream", pflag.ContinueOnError)
	sets := o.Flags(app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases())
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	return all
}
