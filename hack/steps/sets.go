package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
)

// unit are the packages whose tests need nothing but Go, except for the simulation. A test of this
// package finds those that no step runs.
var unit = []string{
	"./internal/...", "./pkg/...", "./hack/...", "./test/bench/...", "./test/calibrate/...", "./test/chaos/...", "./test/cloud/sky/...", "./test/conformance/...", "./test/demo/...",
	"./test/deps/...", "./test/docs/check/...", "./test/docs/markdown/...", "./test/harness/...", "./test/kubeadm/...",
	"./test/scale/...",
}

const simulation = "./test/sim"

// racy are the packages with the most goroutines. pkg/shard itself is pure functions without any,
// and would take minutes under the detector.
var racy = []string{"./pkg/election", "./pkg/election/leaderlock", "./pkg/election/membership", "./pkg/election/request", "./pkg/informer", "./pkg/informer/internal/store", "./pkg/informer/internal/listwatch", "./pkg/controllers/owners", "./pkg/fleet", "./pkg/fleet/fencing", "./pkg/fleet/inforce", "./pkg/fleet/leadership", "./pkg/fleet/planner", "./pkg/flotilla", "./pkg/manager"}

// plane is what a control plane needs.
var plane = []string{"etcd", "kube-apiserver", "kube-scheduler", "kubectl", "kube-controller-manager", "kwok"}

// fleets limits how many tests of e2e run at a time. Three take little more than a core, because
// they wait for Leases to expire.
var fleets = fmt.Sprintf("-parallel=%d", max(3, runtime.NumCPU()))

// check is for before each commit: a minute when everything is compiled.
func check() []step {
	return []step{
		formatStep, modulesStep, vetStep,
		{
			name: "lint-changed", what: "staticcheck on the packages that differ from upstream's branch", long: "some seconds",
			tools: []string{"staticcheck"}, commands: []command{staticcheck()}, changed: true,
		},
		{
			name: "unit-short", what: "tests that need only Go, and 100 simulated seeds", long: "half a minute after a change",
			commands: []command{goTest(append([]string{"-short", "-timeout=10m", simulation}, unit...)...)},
		},
	}
}

// test is what a release must not break. Steps with a control plane mostly wait for Leases and
// kubelets. So two such steps run at a time, with computing steps beside them, and light steps
// where there is time, the longest of them first.
func test() []step {
	return []step{
		formatStep, modulesStep, vetStep, e2eStep, integrationStep, examplesStep, cloudStep, lintStep,
		{
			name: "unit", what: "tests that need only Go, and 2,000 simulated seeds", long: "4 minutes, less if nothing has changed", computes: true,
			commands: []command{goTest(append([]string{"-timeout=30m", simulation}, unit...)...)},
		},
		{
			name: "race", what: "the packages with the most goroutines under the race detector, short", long: "a minute, less if nothing has changed",
			computes: true, needs: []need{needC}, commands: []command{raceTest("-short")},
		},
		plantedStep,
		{
			name: "handbook-short", what: "the handbook's installation and quickstart, run by a kubelet of processes", long: "2 minutes", waits: true,
			needs: []need{needRoots}, tools: plane, member: true, commands: []command{fresh("-timeout=10m", "./test/kubelet"), fresh("-timeout=20m", "./test/docs/run", "-parts=2")},
		},
		chartStep,
		{
			name: "monitoring-short", what: "alerts, runbooks and dashboard, without Prometheus", long: "some seconds", tools: []string{"promexpr"}, computes: true,
			commands: []command{goTest("-timeout=10m", "-short", "./test/monitoring")},
		},
		{
			name: "chaos-one", what: "a suspended member in a burst of work, with the default timings, judged by the audit log", long: "a minute and a half",
			tools: plane, member: true, light: true, commands: []command{busyChaos("stop-in-burst")},
		},
		demoStep, pageStep,
		{
			name: "deploy-short", what: "the image's file system, the static pod compared with kubeadm's, and a shadow's rights", long: "some seconds", member: true, light: true,
			tools:    []string{"kubectl"},
			commands: []command{fresh("-timeout=10m", "-run=TestDockerfile|TestStaticPodIsKubeadms|TestPauseImage|TestShadowMayOnlyRead", "./test/deploy")},
		},
	}
}

// testAll is everything. First what can run beside something else, the longest of what waits first,
// and the longest of what computes last; then what measures time, or needs the machine for itself.
// The kubeadm clusters and the chaos catalogue wait for most of their time, but only computing
// steps are modest enough to run beside them.
func testAll() []step {
	return []step{
		formatStep, modulesStep, vetStep,
		alertsStep, lintStep,
		{
			name: "unit-shuffled", what: "tests that need only Go, in random order", long: "4 minutes", computes: true,
			commands: []command{goTest(append([]string{"-shuffle=on", "-timeout=90m"}, unit...)...)},
		},
		{
			name: "race-shuffled", what: "the packages with the most goroutines under the race detector, in random order", long: "2 minutes", computes: true,
			needs: []need{needC}, commands: []command{raceTest("-shuffle=on", "-timeout=60m")},
		},
		plantedStep, e2eAllStep, integrationStep, monitoringStep, handbookStep, minorStep, deployStep, conformanceShortStep, benchShortStep, canaryStep, examplesStep, cloudStep,
		pageStep, chartStep, plotStep, releaseStep, demoStep, kubeadmStep, chaosAllStep, simStep,
		garbageStep, plantedLiveStep, boundsStep,
	}
}

var (
	formatStep  = step{name: "format", what: "gofmt on every Go file", long: "a second", commands: []command{run("hack/format.sh")}}
	modulesStep = step{name: "modules", what: "every k8s.io module is aligned with k8s.io/kubernetes", long: "a second", commands: []command{run("hack/verify-modules.sh")}}
	vetStep     = step{
		name: "vet", what: "go vet on every package", long: "8 minutes the first time, to compile most of Kubernetes; seconds after that",
		commands: []command{run(append([]string{"go", "vet"}, append(build, "./...")...)...)},
	}
	lintStep = step{
		name: "lint", what: "staticcheck on every package, by staticcheck.conf", long: "3 minutes the first time, seconds after that", computes: true,
		tools: []string{"staticcheck"},
		// Nothing else in the sets compiles the binary without instrumentation.
		commands: []command{staticcheck("./..."), run(append([]string{"go", "vet", "-tags=bare"}, append(build, "./internal/faults", "./cmd/flotilla")...)...)},
	}
	cloudStep = step{
		name: "cloud-managers", what: "cloud controller managers, stock and fleets, in a cloud that keeps a log: kills, the leader lock, a suspended member", long: "2 minutes", waits: true,
		tools: []string{"etcd", "kube-apiserver"}, commands: []command{fresh("-timeout=20m", "./test/cloud")},
	}
	examplesStep = step{
		name: "examples", what: "the examples' modules: vet, staticcheck, and three members of each as processes, one killed, judged by the audit log",
		long: "2 minutes", waits: true, tools: append([]string{"staticcheck"}, plane...), member: true,
		commands: []command{within("examples/client-go", "go", "vet", "./..."), within("examples/client-go", "../../bin/staticcheck", "./..."),
			within("examples/controller-runtime", "go", "vet", "./..."), within("examples/controller-runtime", "../../bin/staticcheck", "./..."),
			fresh("-timeout=20m", "./test/examples")},
	}
	simStep = step{
		name: "sim", what: "20,000 fleets in virtual time under seeded faults, and 2,000 more, some of whose members have another version", long: "15 minutes, twice that beside others", computes: true,
		commands: []command{
			goTest("-count=1", "-shuffle=on", "-timeout=90m", simulation, "-seeds=20000"),
			goTest("-count=1", "-timeout=30m", simulation, "-run=TestSim$", "-seeds=2000", "-versions"),
		},
	}
	plantedStep = step{
		name: "planted", what: "planted bugs, each of which must be found (docs/design/planted.md)", long: "2 minutes", computes: true,
		commands: []command{goTest("-count=1", "-timeout=30m", simulation, "-run=TestPlanted", "-planted")},
	}
	integrationStep = step{
		name: "integration", what: "tests against a real etcd and API server", long: "3 minutes", tools: plane, waits: true,
		// Two of the packages take most of the time, and mostly wait; the others run beside them.
		commands: []command{goTest("-count=1", "-p=3", "-timeout=20m", "./test/integration/...", "./test/controlplane/...")},
	}
	garbageStep = step{
		name: "garbage", what: "300 random owner graphs, twice: the garbage collector in parts, and a fleet of three processes, compared with upstream's (ARGS=\"-seed N\" repeats them)", long: "4 minutes",
		tools: plane, member: true,
		commands: []command{fresh("-timeout=30m", "-v", "-run=TestSameAsStock$|TestMembersSameAsStock$", "./test/integration/garbage", "-graphs=300", "-processes")},
	}
	e2eStep = step{
		name: "e2e", what: "fleets of processes on a real control plane, judged by its audit log", long: "5 minutes", tools: plane, member: true,
		waits: true, commands: []command{fresh("-timeout=30m", fleets, "./test/e2e/...")},
	}
	e2eAllStep = step{
		name: "e2e-all", what: "the same, with every setup that must be the same as stock", long: "6 minutes", tools: plane, member: true, waits: true,
		commands: []command{fresh("-timeout=30m", fleets, "./test/e2e/...", "-every-setup")},
	}
	// One at a time, because the machine is measured first.
	plantedLiveStep = step{
		name: "planted-live", what: "planted bugs on a real control plane, found in the audit log", long: "3 minutes", tools: plane, member: true,
		commands: []command{fresh("-timeout=20m", "-v", "-run=TestPlantedBugsAreConvicted$", "./test/e2e", "-planted")},
	}
	minorStep = step{
		name: "minor", what: "three builds whose catalogues of controllers differ, rolled up and down again under load, judged by the audit log", long: "5 minutes", tools: plane, member: true, waits: true,
		commands: []command{fresh("-timeout=20m", "-v", "-run=TestMinorVersions$", "./test/e2e", "-minor")},
	}
	canaryStep = step{
		name: "canary", what: "a version that is tried on some namespaces under load, aborted once and promoted once, judged by the audit log", long: "3 minutes", tools: plane, member: true, waits: true,
		commands: []command{fresh("-timeout=20m", "-v", "-run=TestCanary$", "./test/e2e", "-canary")},
	}
	boundsStep = step{
		name: "bounds", what: "the time of handoffs, a takeover, and moves from stock to the fleet and back; memory given back", long: "5 minutes", tools: plane, member: true,
		commands: []command{fresh("-timeout=20m", "-parallel=1", "-run=TestFleet$|TestStockToFleetAndBack$|TestHeapIsGivenBack$", "./test/e2e", "-strict", "-migrations=4", "-heap-pods=3000")},
	}
	pageStep = step{
		name: "page", what: "the status page in a real browser (ARGS=\"-shots ../../docs/img\" takes the handbook's pictures)", long: "a minute", tools: plane, member: true, light: true,
		commands: []command{fresh("-timeout=20m", "./test/browser")},
	}
	demoStep = step{
		name: "demo", what: "the demo, run once to its end", long: "a minute and a half", tools: plane, member: true, light: true,
		commands: []command{goRun("./test/demo", "-once")},
	}
	conformanceShortStep = step{
		name: "conformance-short", what: "a few of upstream's specs for every family of controllers, with the fleet", long: "4 minutes",
		tools: conformanceTools, member: true, waits: true, commands: []command{goRun("./test/conformance", "-short")},
	}
	chaosAllStep = step{
		name: "chaos-all", what: "each fault once on a fleet under load, with the default timings, judged by the audit log (ARGS=\"-faults kill,cut\" for some)",
		long: "15 minutes", tools: plane, member: true, waits: true, sole: true, commands: []command{earlier, chaos("-margin=60s")},
	}
	handbookStep = step{
		name: "handbook", what: "the commands of the handbook, run as a reader would type them", long: "3 minutes", needs: []need{needRoots},
		tools: append([]string{"helm"}, plane...), member: true, waits: true, commands: []command{fresh("-timeout=20m", "./test/docs/run")},
	}
	deployStep = step{
		name: "deploy", what: "the manifests, the chart and the image of deploy/, run by kubelets of processes", long: "3 minutes", needs: []need{needRoots},
		tools: append([]string{"helm"}, plane...), member: true, waits: true, commands: []command{fresh("-parallel=3", "-timeout=30m", "./test/kubelet", "./test/deploy")},
	}
	chartStep = step{
		name: "chart", what: "every value of the chart: what it changes, and what it refuses", long: "some seconds; helm takes 2 minutes to build", computes: true,
		tools: []string{"helm"}, commands: []command{fresh("-timeout=10m", "./test/chart")},
	}
	plotStep = step{
		name: "plot", what: "programs of hack/tools that are ours, in modules of their own: vet, staticcheck and tests", long: "some seconds; a minute the first time", computes: true,
		tools: []string{"staticcheck"},
		commands: []command{
			within("hack/tools/plot", "go", "vet", "./..."), within("hack/tools/plot", "../../../bin/staticcheck", "./..."),
			{tests: true, args: slices.Concat([]string{"env", "-C", "hack/tools/plot", "go", "test", "-json"}, build, []string{"-vet=off", "./..."})},
			within("hack/tools/prometheus", "go", "vet", "-tags=remove_all_sd", "./promexpr"),
			within("hack/tools/prometheus", "../../../bin/staticcheck", "-tags=remove_all_sd", "./promexpr"),
		},
	}
	releaseStep = step{
		name: "release", what: "a release for linux/amd64, twice: the same bytes", long: "a minute", computes: true,
		commands: []command{run("make", "--no-print-directory", "release", "N=0", "PLATFORMS=linux/amd64", "ARGS=-twice -out=_output/release-test")},
	}
	benchShortStep = step{
		name: "bench-short", what: "one round of tiny sizes: every figure must be there", long: "2 minutes", tools: plane, member: true, waits: true,
		commands: []command{
			run("rm", "-f", "_output/bench/short.json"),
			goRun("./test/bench", "-check", "-warm-up=false", "-rounds=1", "-systems=stock,fleet-2", "-rates=high", "-deployments=8", "-namespaces=8", "-nodes=4", "-out=_output/bench/short.json"),
			goRun("./test/bench", "-check", "-rounds=1", "-systems=stock", "-scenarios=steady", "-pods=200", "-watch=12", "-empty=false", "-nodes=4", "-out=_output/bench/short.json", "-append"),
			goRun("./test/bench", "-check", "-rounds=1", "-systems=fleet-2", "-scenarios=idle-cost", "-shards=4", "-watch=4", "-out=_output/bench/short.json", "-append"),
		},
	}
	monitoringStep = step{
		name: "monitoring", what: "alerts, runbooks and dashboard, by promtool and on a fleet that Prometheus scrapes", long: "4 minutes", tools: prometheusTools, member: true, waits: true,
		commands: []command{fresh("-timeout=20m", "./test/monitoring/...")},
	}
	alertsStep = step{
		name: "alerts", what: "the fault behind each alert, 10 times as fast as shipped", long: "20 minutes", tools: prometheusTools, member: true, waits: true,
		commands: []command{fresh("-timeout=3h", "./test/monitoring/live", "-run=TestAlerts$", "-faults")},
	}

	kubeadmStep = step{
		name: "kubeadm", what: "two real kubeadm clusters of four nodes: the fleet in by docs/install.md, through upgrades and the loss of a node, and out again, and a hosted cluster (ARGS=\"-stages static\" for some)",
		long: "half an hour beside others; the nodes' programs take 8 minutes to build", waits: true, sole: true, needs: []need{needNodes}, tools: append(slices.Clone(nodeTools), plane...), member: true,
		commands: []command{run("hack/node-packages.sh"), earlier, run("make", "--no-print-directory", "bin/planted/flotilla"), goRun("./test/kubeadm")},
	}

	nodeTools        = []string{"kubeadm", "kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr", "bridge", "host-local", "helm"}
	prometheusTools  = append([]string{"promtool", "promexpr", "prometheus"}, plane...)
	conformanceTools = append([]string{"e2e.test", "ginkgo"}, plane...)
)

// more are long steps that are in no set. The design pages quote their figures.
func more() []step {
	return []step{
		{
			name: "handoffs", what: "over 200 planned handoffs with 5,000 objects; how long shards were unowned", long: "3 minutes", tools: plane, member: true,
			commands: []command{fresh("-timeout=20m", "-v", "-run=TestFleet$", "./test/e2e", "-rollouts=5", "-objects=5000", "-strict")},
		},
		{
			// On a busy machine stock loses dependents here, too.
			name: "graph", what: "deletions that wait for dependents while group garbage changes hands, 20,000 objects, compared with stock", long: "15 minutes", tools: plane,
			commands: []command{fresh("-timeout=120m", "-v", "-run=TestNothingIsDecidedByAnIncompleteGraph", "./test/integration", "-graph-objects=20000", "-graph-runs=10", "-graph-stock")},
		},
		{
			name: "replans", what: "60 changes of plan under load, 30 of them with a member killed in the middle", long: "15 minutes", tools: plane, member: true,
			commands: []command{fresh("-timeout=60m", "-v", "-run=TestPlanChanges$", "./test/e2e", "-replans=60")},
		},
		{
			name: "migrate", what: "ten moves from stock to the fleet, and ten back (docs/migration.md)", long: "6 minutes", tools: plane, member: true,
			commands: []command{fresh("-timeout=30m", "-v", "-run=TestStockToFleetAndBack$", "./test/e2e", "-migrations=10", "-strict")},
		},
		{
			name: "stop", what: "ten times 'flotilla stop' beside a stock replica, until the replica writes, and 'flotilla start' (docs/migration.md)", long: "6 minutes", tools: plane, member: true,
			commands: []command{fresh("-timeout=30m", "-v", "-run=TestStopAndStart$", "./test/e2e", "-stops=10", "-default-retry")},
		},
		{
			name: "balance", what: "a real fleet balances 500 namespaces with unevenly spread names", long: "4 minutes", tools: plane, member: true,
			commands: []command{fresh("-timeout=30m", "-v", "-run=TestBalance$", "./test/e2e", "-balanced=500")},
		},
		{
			name: "garbage-burst", what: "deleting the dependents of one owner in each of 32 namespaces, by one collector and in parts (docs/design/garbage.md)",
			long: "4 minutes", tools: plane, member: true,
			commands: []command{fresh("-timeout=60m", "-v", "-run=TestGarbageBurst$", "./test/e2e", "-garbage-dependents=40")},
		},
		{
			name: "hundred", what: "fleets of 3, 10, 30 and 100 members with stub work on a real API server: kills, restarts, a new plan, and their cost (docs/scale.md; ARGS=\"-members 10\" for one)",
			long: "half an hour; wants an idle machine", tools: []string{"etcd", "kube-apiserver"}, commands: []command{goRun("./test/scale")},
		},
		{
			name: "healthy", what: "no alert during a rolling restart and a plan change, with the alerts' own durations", long: "12 minutes", tools: prometheusTools, member: true,
			commands: []command{fresh("-timeout=1h", "-v", "./test/monitoring/live", "-run=TestHealthy$", "-factor=1", "-healthy=10m")},
		},
		{
			name: "cloud", what: "500 Services get load balancers from stock and from fleets, with a cloud limit per client and one for all (docs/cloud.md; ARGS=\"-services 100\" for fewer)",
			long: "a quarter of an hour; wants an idle machine", tools: []string{"etcd", "kube-apiserver"}, commands: []command{goRun("./test/cloud/bench")},
		},
		{
			name: "overhead", what: "what metrics, events, journal and status page cost a loaded member in CPU; needs an idle machine", long: "10 minutes", tools: plane, member: true,
			commands: []command{run("make", "--no-print-directory", "bin/flotilla-bare"), goRun("./test/bench/overhead")},
		},
		{
			name: "chaos", what: "each fault once under load, then half an hour of random ones (ARGS=\"-seed N\" repeats a schedule)", long: "45 minutes", tools: plane, member: true,
			commands: []command{earlier, chaos("-margin=60s", "-minutes=30")},
		},
		{
			name: "conformance", what: "upstream's own specs, with the stock controller manager and with a fleet of three (docs/conformance.md)", long: "40 minutes", tools: conformanceTools, member: true,
			commands: []command{goRun("./test/conformance")},
		},
		{
			name: "conformance-rolling", what: "the same specs with the fleet, while its members are killed and rolled", long: "half an hour", tools: conformanceTools, member: true,
			commands: []command{goRun("./test/conformance", "-disturb")},
		},
	}
}

// earlier builds the flotilla of another version for the fault versions.
var earlier = run("make", "--no-print-directory", "earlier")

// chaos uses flotilla's default Lease timings; the tool's own need an idle machine.
func chaos(flags ...string) command {
	return goRun("./test/chaos", append([]string{"-lease-duration=15s", "-renew-deadline=10s", "-retry-period=2s"}, flags...)...)
}

// busyChaos also has long limits, because it must pass on a machine that is busy with something
// else.
func busyChaos(faults string) command {
	return chaos("-load=5", "-faults="+faults, "-least-rate=5", "-margin=60s", "-bounds=false")
}

// within runs a command in the directory of another module.
func within(folder string, args ...string) command {
	return command{env: []string{"GOFLAGS=" + buildFlags()}, args: append([]string{"env", "-C", folder}, args...)}
}

func raceTest(flags ...string) command {
	return goTest(slices.Concat([]string{"-race", "-timeout=20m"}, flags, racy)...).with("CGO_ENABLED=1")
}

func staticcheck(packages ...string) command {
	return command{env: []string{"GOFLAGS=" + buildFlags()}, args: append([]string{"bin/staticcheck"}, packages...)}
}

// buildFlags returns the GOFLAGS of commands that compile by themselves.
func buildFlags() string {
	return strings.TrimSpace(os.Getenv("GOFLAGS") + " " + strings.Join(build, " "))
}
