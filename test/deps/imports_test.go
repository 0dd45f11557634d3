package deps

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// layers are the parts of the project, from top to bottom: each may import itself and those below
// it.
var layers = []string{
	"cmd", "internal/app", "internal/cli", "internal/status", "pkg/audit", "pkg/cloud", "internal/flags", "pkg/manager", "pkg/flotilla", "pkg/events", "pkg/metrics",
	"pkg/fleet", "pkg/controllers", "pkg/election", "internal/apiresponse", "pkg/informer", "pkg/shard", "internal/faults",
}

const directionReason = "imports point down cmd > internal/app > internal/cli > internal/status > pkg/audit > pkg/cloud > internal/flags > pkg/manager > pkg/flotilla > pkg/events > pkg/metrics > " +
	"pkg/fleet > pkg/controllers > pkg/election > internal/apiresponse > pkg/informer > pkg/shard > internal/faults and " +
	"never up, so that each part can be read, tested and used without the parts above it"

// A rule says what the packages of some directories may import. Paths of the project's own packages
// are relative to the module, those of others are complete. Each includes the packages below it.
type rule struct {
	in      []string // directories it applies to, "" for all
	except  []string // directories in them that it does not apply to
	only    []string // if set: the imports allowed, besides the standard library and the directory itself
	never   []string // imports refused
	inTests bool     // applies to _test.go files too
	reason  string
}

var rules = []rule{
	{
		in:   []string{"cmd"},
		only: []string{"internal/app"},
		reason: "the command is a main function and nothing else: what it did itself, no test and no other program " +
			"could reach",
	},
	{
		in:      []string{""},
		except:  []string{"cmd", "internal/app", "pkg/controllers", "test"},
		never:   []string{"k8s.io/kubernetes"},
		inTests: true,
		reason: "only cmd, internal/app, pkg/controllers and the tests may import k8s.io/kubernetes: it is not meant as a " +
			"library, and whoever uses ours would have to repeat its replace lines",
	},
	{
		in: []string{"pkg/shard"},
		only: []string{
			"internal/faults", "k8s.io/apimachinery", "github.com/buraksezer/consistent", "github.com/cespare/xxhash/v2",
		},
		reason: "keyspace, ranges, ring and plan are pure functions: no client, no clock, no log; every member must " +
			"compute the same from the same input",
	},
	{
		in:     []string{"pkg/informer"},
		except: []string{"pkg/informer/internal/informertest"},
		only:   []string{"pkg/shard", "internal/faults", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2", "k8s.io/utils"},
		reason: "the filtered informers are a library for any controller on client-go, not only for upstream's",
	},
	{
		in:     []string{"pkg/informer/internal/store"},
		never:  []string{"pkg/informer/internal/listwatch"},
		reason: "what an informer holds does not depend on how it is read",
	},
	{
		in:     []string{"pkg/informer/internal/listwatch"},
		never:  []string{"pkg/informer/internal/store"},
		reason: "how a resource is read does not depend on what is kept of it",
	},
	{
		in:     []string{"pkg/controllers/owners"},
		only:   []string{"k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/controller-manager", "k8s.io/klog/v2"},
		reason: "it puts any informers into an order, and need not know which objects there are",
	},
	{
		in:     []string{"pkg/controllers/wire"},
		only:   []string{"google.golang.org/protobuf"},
		reason: "it shortens messages by the numbers of their fields, and need not know what they mean",
	},
	{
		in: []string{"pkg/election"},
		only: []string{
			"internal/apiresponse", "internal/faults", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2", "k8s.io/utils", "golang.org/x/sys",
		},
		reason: "membership, claims and fence know Leases and nothing else, neither shards nor controllers: a claim is on " +
			"a name, so that someone else's controller can use it",
	},
	{
		in:   []string{"pkg/election/fence"},
		only: []string{"internal/apiresponse", "internal/faults", "k8s.io/apimachinery"},
		reason: "the fence knows a claim by what it asks of it, and no Leases: it stands before whatever has a right " +
			"that ends",
	},
	{
		in:     []string{"pkg/election/request"},
		only:   []string{"k8s.io/api", "k8s.io/apimachinery"},
		reason: "a request is sent for any loop that keeps a Lease: who holds it, and why, the loop knows",
	},
	{
		in:      []string{"pkg/election"},
		except:  []string{"pkg/election/leaderlock"},
		never:   []string{"pkg/election/leaderlock"},
		inTests: true,
		reason:  "a leader lock is one thing that is made of Leases: members and claims do without it",
	},
	{
		in:      []string{"pkg/election"},
		except:  []string{"pkg/election/membership"},
		never:   []string{"pkg/election/membership"},
		inTests: true,
		reason:  "a claim asks a Heartbeat whether it holds: who is a member, and who judges whom, it need not know",
	},
	{
		in:     []string{"pkg/election/leaserecord"},
		only:   []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/utils", "pkg/election/heartbeat"},
		reason: "what a Lease says is read from it, and written on it, without a client or a clock",
	},
	{
		in:     []string{"internal/apiresponse"},
		only:   []string{"k8s.io/apimachinery", "k8s.io/client-go/rest", "google.golang.org/protobuf"},
		reason: "what an answer says is read from its bytes, and what a request is for from its path, whoever has sent it and whatever the kind is",
	},
	{
		in:     []string{"internal/faults"},
		only:   []string{},
		reason: "a planted bug is a constant that every part may use, and that must bring nothing into a binary without it",
	},
	{
		in:     []string{""},
		except: []string{"pkg/manager", "test"},
		never:  []string{"sigs.k8s.io/controller-runtime"},
		reason: "who writes controllers on client-go builds no controller-runtime: what needs it is in pkg/manager",
	},
	{
		in: []string{"pkg/manager"},
		only: []string{
			"pkg/flotilla", "pkg/informer", "sigs.k8s.io/controller-runtime",
			"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2", "k8s.io/utils",
		},
		reason: "a shard's Manager is made of what any adopter has: a Shard and its informers",
	},
	{
		in: []string{"pkg/cloud"},
		only: []string{
			"internal/apiresponse", "internal/flags", "pkg/flotilla", "pkg/election", "pkg/shard", "k8s.io/cloud-provider", "k8s.io/controller-manager",
			"k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiserver", "k8s.io/client-go", "k8s.io/component-base", "k8s.io/klog/v2",
			"github.com/spf13/cobra", "github.com/spf13/pflag",
		},
		reason: "a provider's main imports it: it brings what upstream's cloud controller manager is made of, and the fleet",
	},
	{
		in:     []string{""},
		except: []string{"pkg/cloud", "test"},
		never:  []string{"k8s.io/cloud-provider"},
		reason: "who runs other controllers builds no cloud controller manager: what needs it is in pkg/cloud",
	},
	{
		in: []string{"pkg/metrics"},
		only: []string{
			"pkg/fleet", "pkg/election", "pkg/informer", "pkg/shard", "internal/faults",
			"github.com/prometheus/client_golang", "k8s.io/apimachinery",
		},
		reason: "the metrics are for any program with a member of a fleet, which has Prometheus' client and neither " +
			"component-base's registry nor kube-controller-manager's queues: what needs those is in internal/app/metrics",
	},
	{
		in:      []string{"pkg/metrics"},
		never:   []string{"k8s.io/component-base"},
		inTests: true,
		reason:  "a test with component-base's registry would not see what a program without it sees",
	},
	{
		in:    []string{"pkg/fleet"},
		never: []string{"pkg/controllers"},
		reason: "a member's loop starts and stops shards through an interface that the program fills in: it is tested with " +
			"many members at once, none of which could afford real controllers",
	},
	{
		in:     []string{"pkg/fleet/shardrun"},
		only:   []string{},
		reason: "what a member does about a shard is decided by pure functions, which an explorer walks through: no client, no clock, no log",
	},
	{
		in: []string{"pkg/fleet/leaseapi", "pkg/fleet/assignment", "pkg/fleet/history", "pkg/fleet/inforce"},
		only: []string{
			"pkg/fleet/leaseapi", "pkg/election", "pkg/shard", "internal/faults", "k8s.io/api", "k8s.io/apimachinery",
		},
		reason: "what Leases say, what has happened to them, which plan may be in force, and who should own what, is the same for a member and for whoever looks on: " +
			"pure functions, without a client, a clock or a log",
	},
	{
		in:    []string{"pkg/audit"},
		never: []string{"pkg/controllers", "k8s.io/client-go"},
		reason: "a judge reads logs and asks no cluster, and whatever the controllers are: what needs the catalogue, its caller " +
			"passes in",
	},
	{
		in:    []string{"internal/cli"},
		never: []string{"pkg/controllers"},
		reason: "the operator's commands read Leases and plans, whatever the controllers are: what needs the catalogue, " +
			"internal/app passes in",
	},
	{
		in:     []string{""},
		except: []string{"test", "pkg/election/leasetest", "pkg/informer/internal/informertest"},
		never:  []string{"test", "pkg/election/leasetest", "pkg/informer/internal/informertest", "testing"},
		reason: "what ships must not carry the code that tests it",
	},
	{
		in:      []string{"cmd", "internal", "pkg"},
		never:   []string{"test/controlplane"},
		inTests: true,
		reason: "the unit tests run before the control plane's binaries are built; a test that needs an API server " +
			"belongs in test/integration",
	},
	{
		in:      []string{""},
		never:   []string{"C"},
		inTests: true,
		reason:  "the project builds with CGO_ENABLED=0, on machines without a C compiler and for images without a libc",
	},
}

// TestImports checks every file against the direction of the layers and the rules above.
func TestImports(t *testing.T) {
	for _, f := range sources(t) {
		for _, complaint := range importComplaints(f) {
			t.Error(complaint)
		}
	}
}

// TestEveryPackageHasALayer finds a package that the direction rule would overlook.
func TestEveryPackageHasALayer(t *testing.T) {
	for _, f := range sources(t) {
		if (below(f.path, "pkg") || below(f.path, "internal") || below(f.path, "cmd")) && layerOf(f.path) < 0 {
			t.Errorf("%s: the directory is in no layer; add it to layers: %s", f.path, directionReason)
		}
	}
}

func importComplaints(f file) []string {
	var complaints []string
	for _, spec := range f.ast.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return []string{fmt.Sprintf("%s: %v", f.at(spec.Pos()), err)}
		}
		imported := strings.TrimPrefix(name, module)
		if upwards(f.path, imported) {
			complaints = append(complaints, fmt.Sprintf("%s: imports %s: %s", f.at(spec.Pos()), imported, directionReason))
			continue
		}
		for _, r := range rules {
			if r.holdsFor(f) && r.refuses(imported) {
				complaints = append(complaints, fmt.Sprintf("%s: imports %s: %s", f.at(spec.Pos()), imported, r.reason))
			}
		}
	}
	return complaints
}

// upwards applies to tests too: a test that needs an upper part is a test of that part.
func upwards(from, imported string) bool {
	target := layerOf(imported)
	return target >= 0 && layerOf(from) > target
}

// layerOf returns the layer's number, counted from the top, or -1.
func layerOf(name string) int {
	return slices.IndexFunc(layers, func(layer string) bool { return below(name, layer) })
}

func (r rule) holdsFor(f file) bool {
	return (r.inTests || !f.isTest()) && belowAny(f.path, r.in) && !belowAny(f.path, r.except)
}

func (r rule) refuses(imported string) bool {
	if belowAny(imported, r.never) {
		return true
	}
	return r.only != nil && !standard(imported) && !belowAny(imported, r.only) && !belowAny(imported, r.in)
}

// standard reports whether a path is in the standard library, by the go command's rule: no dot in
// the first element. The project's own shortened paths have none either.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".") && !slices.Contains([]string{"cmd", "hack", "internal", "pkg", "test"}, first)
}

func below(name, folder string) bool {
	return folder == "" || name == folder || strings.HasPrefix(name, folder+"/")
}

func belowAny(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return below(name, folder) })
}

// TestImportRulesComplain plants imports, one for each rule and some that are allowed.
func TestImportRulesComplain(t *testing.T) {
	tests := []struct {
		path, imported string
		want           string // part of the only complaint; "" for none
	}{
		{"pkg/shard/ring.go", module + "pkg/election", "never up"},
		{"pkg/shard/ring_test.go", module + "internal/app", "never up"},
		{"pkg/controllers/run.go", module + "pkg/fleet", "never up"},
		{"internal/app/run.go", module + "pkg/fleet", ""},
		{"internal/app/run.go", module + "cmd/flotilla", "never up"},
		{"cmd/flotilla/main.go", module + "pkg/fleet", "a main function and nothing else"},
		{"cmd/flotilla/main.go", "time/tzdata", ""},
		{"hack/gen/main.go", "k8s.io/kubernetes/pkg/controller", "repeat its replace lines"},
		{"pkg/fleet/member_test.go", "k8s.io/kubernetes/pkg/controller", "repeat its replace lines"},
		{"pkg/controllers/run.go", "k8s.io/kubernetes/pkg/controller", ""},
		{"pkg/fleet/member.go", "k8s.io/kubernetes-csi/x", ""},
		{"pkg/shard/ring.go", "k8s.io/klog/v2", "pure functions"},
		{"pkg/shard/ring.go", "k8s.io/apimachinery/pkg/util/sets", ""},
		{"pkg/shard/ring.go", module + "pkg/informer", "never up"},
		{"pkg/shard/ring_test.go", "k8s.io/apiserver/pkg/sharding", ""},
		{"pkg/informer/view.go", "k8s.io/component-base/metrics", "any controller on client-go"},
		{"pkg/informer/view.go", "k8s.io/client-go/tools/cache", ""},
		{"pkg/controllers/owners/turn.go", module + "pkg/controllers", "any informers"},
		{"pkg/controllers/owners/turn.go", module + "pkg/informer", "any informers"},
		{"pkg/controllers/owners/informers.go", "k8s.io/controller-manager/pkg/informerfactory", ""},
		{"pkg/election/claim.go", module + "pkg/shard", "neither shards nor controllers"},
		{"pkg/election/claim.go", "golang.org/x/sys/unix", ""},
		{"pkg/election/claim_test.go", module + "pkg/election/leasetest", ""},
		{"pkg/election/claim.go", module + "pkg/election/leasetest", "must not carry the code that tests it"},
		{"pkg/fleet/member.go", module + "pkg/controllers/catalogue", "through an interface"},
		{"pkg/metrics/count.go", module + "pkg/controllers/queues", "what needs those is in internal/app/metrics"},
		{"pkg/metrics/count.go", module + "internal/status", "never up"},
		{"pkg/metrics/count.go", "k8s.io/klog/v2", "what needs those is in internal/app/metrics"},
		{"pkg/metrics/count.go", "github.com/prometheus/client_golang/prometheus", ""},
		{"pkg/metrics/count.go", "k8s.io/apimachinery/pkg/api/errors", ""},
		{"pkg/metrics/count.go", module + "pkg/fleet", ""},
		{"pkg/metrics/count_test.go", "k8s.io/component-base/metrics/testutil", "would not see"},
		{"pkg/metrics/count_test.go", module + "pkg/election/leasetest", ""},
		{"pkg/fleet/member.go", module + "pkg/metrics", "never up"},
		{"pkg/fleet/leaseapi/plan.go", module + "pkg/fleet", "whoever looks on"},
		{"pkg/election/fence/fence.go", module + "pkg/election", "knows a claim by"},
		{"pkg/election/request/request.go", module + "pkg/election", "the loop knows"},
		{"pkg/election/observer.go", module + "pkg/election/leaderlock", "do without it"},
		{"pkg/election/claimant_test.go", module + "pkg/election/membership", "asks a Heartbeat"},
		{"pkg/election/membership/roster.go", module + "pkg/election", ""},
		{"pkg/election/leaserecord/record.go", module + "pkg/election", "without a client or a clock"},
		{"pkg/election/leaderlock/loop.go", module + "pkg/election/request", ""},
		{"pkg/fleet/assignment/versions.go", "k8s.io/klog/v2", "whoever looks on"},
		{"pkg/fleet/history/history.go", module + "pkg/fleet", "whoever looks on"},
		{"pkg/fleet/history/history.go", module + "pkg/fleet/leaseapi", ""},
		{"pkg/flotilla/shard.go", module + "pkg/manager", "never up"},
		{"pkg/flotilla/shard.go", "sigs.k8s.io/controller-runtime/pkg/client", "builds no controller-runtime"},
		{"pkg/manager/shard.go", "sigs.k8s.io/controller-runtime/pkg/client", ""},
		{"pkg/manager/shard.go", module + "pkg/fleet", "what any adopter has"},
		{"pkg/manager/shard.go", module + "pkg/cloud", "never up"},
		{"pkg/cloud/run.go", module + "pkg/fleet", "a provider's main imports it"},
		{"pkg/cloud/run.go", "k8s.io/cloud-provider/app", ""},
		{"internal/apiresponse/path.go", "k8s.io/client-go/kubernetes", "from its path"},
		{"internal/apiresponse/path.go", "k8s.io/client-go/rest", ""},
		{"pkg/flotilla/shard.go", "k8s.io/cloud-provider", "builds no cloud controller manager"},
		{"test/controlplane/users.go", "sigs.k8s.io/controller-runtime/pkg/envtest", ""},
		{"pkg/audit/check.go", module + "pkg/controllers/catalogue", "its caller passes in"},
		{"pkg/audit/check.go", "k8s.io/client-go/kubernetes", "asks no cluster"},
		{"pkg/audit/check.go", "k8s.io/apiserver/pkg/apis/audit/v1", ""},
		{"internal/cli/edit.go", module + "pkg/controllers", "internal/app passes in"},
		{"internal/cli/edit.go", module + "pkg/fleet", ""},
		{"internal/cli/edit.go", module + "internal/app", "never up"},
		{"pkg/fleet/member.go", module + "internal/cli", "never up"},
		{"internal/app/run.go", module + "test/harness", "must not carry the code that tests it"},
		{"internal/app/run.go", "testing/synctest", "must not carry the code that tests it"},
		{"internal/app/run_test.go", "testing/synctest", ""},
		{"internal/app/run_test.go", module + "test/harness", ""},
		{"internal/app/run_test.go", module + "test/controlplane", "belongs in test/integration"},
		{"test/e2e/e2e_test.go", module + "test/controlplane", ""},
		{"test/bench/run.go", "k8s.io/kubernetes/pkg/controller", ""},
		{"test/bench/run_test.go", "C", "without a C compiler"},
	}
	for _, tc := range tests {
		f := parse(t, tc.path, "package planted\n\nimport _ "+strconv.Quote(tc.imported)+"\n")
		expect(t, tc.path+" imports "+tc.imported, importComplaints(f), tc.want)
	}
}

// expect requires one complaint that contains want and names line 3 of the planted file, or none if
// want is "".
func expect(t *testing.T, what string, complaints []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(complaints) > 0:
		t.Errorf("%s: got %q, want no complaint", what, complaints)
	case want != "" && (len(complaints) != 1 || !strings.Contains(complaints[0], want) || !strings.Contains(complaints[0], ".go:3:")):
		t.Errorf("%s: got %q, want one complaint about line 3 with %q", what, complaints, want)
	}
}
