# Everything that is run in this repository, by hand or by CI. Needs Go, git and GNU make, and no C compiler.
# Lines that end in "## text" are listed by `make help`, under the "##@ group" above them.

.DEFAULT_GOAL := help

# One build at a time: each one uses all cores already.
.NOTPARALLEL:

export CGO_ENABLED = 0
export GOWORK = off

# The version that bin/flotilla reports is that of the controllers in it, as kube-controller-manager would say it.
KUBERNETES := $(shell awk '$$1 == "k8s.io/kubernetes" { print $$2; exit }' go.mod)
numbers := $(subst ., ,$(KUBERNETES:v%=%))
stamp := k8s.io/component-base/version
commit = $(shell git rev-parse HEAD 2>/dev/null)
tree = $(if $(shell git status --porcelain 2>/dev/null),dirty,clean)
# No build date: the same commit gives the same binary.
LDFLAGS = -s -w -X $(stamp).gitVersion=$(KUBERNETES) \
	-X $(stamp).gitMajor=$(word 1,$(numbers)) -X $(stamp).gitMinor=$(word 2,$(numbers)) \
	$(if $(commit),-X $(stamp).gitCommit=$(commit) -X $(stamp).gitTreeState=$(tree))

# The same flags as in hack/build-tools.sh, so that everything is compiled once for tools, tests and linters.
GOBUILD := -trimpath -buildvcs=false
# vet has a step of its own, which covers every package.
GOTEST := go test $(GOBUILD) -vet=off

# packages names what is below folders, leaving out folders without Go files.
packages = $(foreach dir,$(1),$(if $(shell find $(dir) -name '*.go' 2>/dev/null | head -n 1),./$(dir)/...))
UNIT = $(call packages,pkg hack test/deps test/audit test/demo test/sim test/chaos test/docs/page test/docs/check test/bench test/conformance)
# pkg/shard itself is pure functions without a goroutine, and three minutes of them under the detector.
RACE = $(call packages,pkg/election pkg/shard/informer pkg/fleet)
INTEGRATION = $(call packages,test/integration test/controlplane)
E2E = $(call packages,test/e2e)
DEPLOY = $(call packages,test/kubelet test/deploy)
gofolders = $(filter-out bin _output,$(patsubst %/,%,$(wildcard */)))
step := @hack/step.sh
# call gotest,NAME,WHAT,HOW LONG,FLAGS,PACKAGES runs a step of tests; no packages at all would mean the root's.
gotest = $(if $(strip $(5)),$(step) $(1) "$(2)" "$(3)" $(GOTEST) $(4) $(5),@echo "==> $(1): SKIPPED: no Go files there")

##@ Try it

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make <target>" } \
		/^##@ / { group = substr($$0, 5); if (!(group in lines)) order[++n] = group } \
		/^[a-z][a-z0-9-]*:.*## / { lines[group] = lines[group] sprintf("  %-17s %s\n", $$1, $$2) } \
		END { for (i = 1; i <= n; i++) printf "\n%s\n%s", order[i], lines[order[i]] }' $(MAKEFILE_LIST)

.PHONY: demo
demo: tools build ## Run a fleet on a real control plane on this machine (ARGS="..." for the demo's own flags).
	go run $(GOBUILD) ./test/demo $(ARGS)

.PHONY: demo-once
demo-once: tools build ## The same, once through and out, without waiting for keys.
	go run $(GOBUILD) ./test/demo -once $(ARGS)

##@ Build

.PHONY: build
build: ## Build bin/flotilla (about 3 minutes the first time, seconds after a change).
	$(step) build "bin/flotilla with Kubernetes $(KUBERNETES)" "3 minutes the first time, seconds when cached" \
		go build $(GOBUILD) -ldflags '$(strip $(LDFLAGS))' -o bin/flotilla ./cmd/flotilla

include hack/tools.mk

##@ Test

.PHONY: test
test: format verify-modules vet lint unit planted integration e2e deploy docs page monitoring conformance-short bench-short chaos-short demo-once ## Everything below, in this order (over an hour the first time, 50 minutes after that).
	@echo "==> test: all passed"

.PHONY: format
format: ## Check that every Go file is formatted.
	$(step) format "gofmt on every Go file" "a second" hack/format.sh $(gofolders)

.PHONY: vet
vet: ## go vet on every package.
	$(step) vet "go vet on every package" "8 minutes the first time, which compiles most of Kubernetes; seconds after that" \
		go vet $(GOBUILD) ./...

.PHONY: lint
lint: ## staticcheck on every package, by staticcheck.conf.
	@hack/build-tools.sh staticcheck
	$(step) lint "staticcheck on every package" "3 minutes the first time, seconds after that" \
		env GOFLAGS="$$(go env GOFLAGS) $(GOBUILD)" bin/staticcheck ./...

.PHONY: unit
unit: ## Tests that need nothing but Go, and the race detector where there is a C compiler.
	$(call gotest,unit,tests that need nothing but Go,two minutes when compiled,-shuffle=on -timeout 15m,$(UNIT))
	@$(MAKE) --no-print-directory race

.PHONY: race
race: ## Tests of the packages with the most goroutines, under the race detector (needs a C compiler).
	@hack/race.sh $(GOTEST) -timeout 20m $(RACE)

.PHONY: integration
integration: tools ## Tests against a real etcd and API server.
	$(call gotest,integration,tests against a real etcd and API server,2 minutes,-count=1 -p=1 -timeout 20m,$(INTEGRATION))

.PHONY: e2e
e2e: tools build ## Fleets of processes on a real control plane, judged by its audit log.
	$(call gotest,e2e,fleets of processes on a real control plane,6 minutes,-count=1 -p=1 -timeout 30m,$(E2E))

.PHONY: monitoring
monitoring: tools build ## Alerts, runbooks and dashboard of deploy/monitoring: by themselves, and on a fleet that Prometheus scrapes.
	@hack/build-tools.sh promtool promexpr prometheus
	$(call gotest,monitoring,alerts and dashboard by promtool and on a real fleet,4 minutes,-count=1 -p=1 -timeout 20m,$(call packages,test/monitoring))

.PHONY: deploy
deploy: tools build ## The manifests, the chart and the image of deploy/, run by kubelets of processes.
	@hack/build-tools.sh helm
	@hack/confined.sh deploy hack/step.sh deploy "what is in deploy/ is run" "4 minutes" \
		$(GOTEST) -count=1 -p=1 -parallel=3 -timeout 30m $(DEPLOY)

.PHONY: docs
docs: tools build ## The handbook's commands, run as a reader would type them.
	@hack/build-tools.sh helm
	@hack/confined.sh docs hack/step.sh docs "the commands of the handbook are run" "4 minutes" \
		$(GOTEST) -count=1 -timeout 20m ./test/docs/run

.PHONY: page
page: tools build ## The status page in a real browser, where there is one (ARGS="-shots ../../docs/img" takes the handbook's pictures).
	$(step) page "the status page in a real browser" "2 minutes" $(GOTEST) -count=1 -v -timeout 20m ./test/page $(ARGS)

# The default timings of Leases and much patience: it must hold on a machine that is busy with something else too.
.PHONY: chaos-short
chaos-short: tools build ## A kill, a suspended member in a burst of work, and a rolling restart, under load.
	$(step) chaos-short "faults on a fleet under load, judged by the audit log" "3 minutes" \
		go run $(GOBUILD) ./test/chaos -load 5 -faults kill,stop-in-burst,rolling -least-rate 5 -margin 60s \
		-lease-duration 15s -renew-deadline 10s -retry-period 2s $(ARGS)

##@ Long tests

.PHONY: sim
sim: ## Fleets in virtual time under seeded faults (ARGS="-seeds 20000"; unit runs 2,000).
	$(step) sim "fleets under seeded faults" "a minute for 2,000" $(GOTEST) -count=1 -timeout 60m ./test/sim -run 'TestSim$$' $(ARGS)

.PHONY: planted
planted: ## Build each planted bug and see it found (docs/design/planted.md).
	$(step) planted "planted bugs, each to be found" "a minute" $(GOTEST) -count=1 -timeout 30m ./test/sim -run TestPlanted -planted -v

.PHONY: handoffs
handoffs: tools build ## Over 200 planned handoffs with 5,000 objects (3 minutes); prints how long shards had no holder.
	$(step) handoffs "five rolling restarts of three members, and scaling" "3 minutes" \
		$(GOTEST) -count=1 -timeout 20m -v -run 'TestHandoffs$$' ./test/e2e -rollouts 5 -objects 5000

# On a busy machine stock loses dependents here, too.
.PHONY: graph
graph: tools build ## Deletions that depend on dependents while group garbage changes hands, with 20,000 objects, beside stock (15 minutes; ARGS="-graph-objects 100000").
	$(step) graph "owners are deleted while the garbage collector changes hands, ten times each way" "15 minutes" \
		$(GOTEST) -count=1 -timeout 120m -v -run TestNothingIsDecidedByAnIncompleteGraph ./test/integration -graph-objects 20000 -graph-runs 10 -graph-stock $(ARGS)

.PHONY: replans
replans: tools build ## 60 changes of plan under load, 30 of them with a member killed in the middle (15 minutes).
	$(step) replans "60 changes of plan under load" "15 minutes" \
		$(GOTEST) -count=1 -timeout 60m -v -run 'TestPlanChanges$$' ./test/e2e -replans 60

.PHONY: migrate
migrate: tools build ## From stock replicas to the fleet and back, ten times each (6 minutes); prints how long nobody ran (docs/migration.md).
	$(step) migrate "ten moves from stock to the fleet, and ten back" "6 minutes" \
		$(GOTEST) -count=1 -timeout 30m -v -run 'TestStockToFleetAndBack$$' ./test/e2e -migrations 10 -strict $(ARGS)

.PHONY: balance
balance: tools build ## A real fleet with 500 namespaces whose names lie badly, until their weight is even (4 minutes).
	$(step) balance "a real fleet evens out 500 namespaces" "4 minutes" \
		$(GOTEST) -count=1 -timeout 30m -v -run 'TestBalance$$' ./test/e2e -balanced 500

.PHONY: alerts
alerts: tools build ## Make the fault behind each alert (half an hour, 10 times as fast as shipped), then 10 healthy minutes as shipped.
	@hack/build-tools.sh promexpr prometheus
	$(step) alerts "a fault for each alert" "half an hour" \
		$(GOTEST) -count=1 -timeout 3h -v ./test/monitoring/live -run 'TestAlerts$$' -faults $(ARGS)
	$(step) alerts "no alert in a rolling restart and a change of plan, with the alerts' own durations" "12 minutes" \
		$(GOTEST) -count=1 -timeout 1h -v ./test/monitoring/live -run 'TestHealthy$$' -factor 1 -healthy 10m

.PHONY: overhead
overhead: tools build ## What metrics, events, journal and status page cost a loaded member in CPU, with and without, in turn (10 minutes; wants an idle machine).
	go build $(GOBUILD) -tags bare -ldflags '$(strip $(LDFLAGS))' -o bin/flotilla-bare ./cmd/flotilla
	go run $(GOBUILD) ./test/bench/overhead $(ARGS)

# What to measure, in which sizes and how often is for flags. Wants an idle machine.
.PHONY: bench
bench: tools build ## Stock and fleets of 1, 2 and 4 at the same work, in turn (ARGS="-scenarios basic -rates default,high -out FILE.json").
	go run $(GOBUILD) ./test/bench $(ARGS)

.PHONY: bench-short
bench-short: tools build ## One round of tiny sizes: every figure must be there (2 minutes).
	@rm -f _output/bench/short.json
	go run $(GOBUILD) ./test/bench -check -rounds 1 -systems stock,fleet-2 -rates high -deployments 8 -namespaces 8 -nodes 4 -out _output/bench/short.json
	go run $(GOBUILD) ./test/bench -check -rounds 1 -systems stock -scenarios steady -pods 200 -watch 12 -empty=false -nodes 4 -out _output/bench/short.json -append

# Pictures of results that are gone must go too.
RESULTS ?= $(wildcard docs/benchmarks/results/*.json)
.PHONY: bench-report
bench-report: ## Write the tables and pictures of docs/benchmarks from its results (RESULTS="file..." for others).
	@hack/build-tools.sh plot
	@mkdir -p _output
	go run $(GOBUILD) ./test/bench/report/page -plots _output/plots.json $(RESULTS)
	@rm -f docs/benchmarks/*.svg
	bin/plot -out docs/benchmarks _output/plots.json

.PHONY: chaos
chaos: tools build ## Each fault once under load, then half an hour of them at random (ARGS="-seed N" to repeat a schedule).
	$(step) chaos "faults on a fleet under load, judged by the audit log" "45 minutes" \
		go run $(GOBUILD) ./test/chaos -minutes 30 $(ARGS)

.PHONY: chaos-all
chaos-all: tools build ## Each fault once, with a table (ARGS="-faults kill,cut" for some; "-margin 45s" on a busy machine).
	$(step) chaos-all "each fault once on a fleet under load, judged by the audit log" "10 minutes" \
		go run $(GOBUILD) ./test/chaos $(ARGS)

.PHONY: conformance-tools
conformance-tools: tools build
	@hack/build-tools.sh e2e.test ginkgo

.PHONY: conformance
conformance: conformance-tools ## Upstream's own e2e specs, with the stock controller manager and with a fleet of three (ARGS="-runs 2"; docs/conformance.md).
	$(step) conformance "upstream's specs, with stock and with the fleet" "40 minutes" \
		go run $(GOBUILD) ./test/conformance $(ARGS)

.PHONY: conformance-rolling
conformance-rolling: conformance-tools ## The same specs with the fleet, while its members are killed and rolled (ARGS="-seed N").
	$(step) conformance-rolling "upstream's specs while members are killed and rolled" "half an hour" \
		go run $(GOBUILD) ./test/conformance -disturb $(ARGS)

.PHONY: conformance-short
conformance-short: conformance-tools ## A few of the specs for every family of controllers, with the fleet (under 3 minutes).
	$(step) conformance-short "a few of upstream's specs with the fleet" "3 minutes" \
		go run $(GOBUILD) ./test/conformance -short $(ARGS)

.PHONY: judge
judge: ## Judge audit logs (LOG="file..." ARGS="-o json").
	go run $(GOBUILD) ./hack/judge $(ARGS) $(LOG)

##@ Check

.PHONY: verify
verify: verify-modules verify-generated ## Check what is derived from something else: versions and generated files.

.PHONY: verify-generated
verify-generated: ## Check that go.mod files are tidy and that generated files are what their generators write.
	@hack/verify-generated.sh

##@ Tidy up

.PHONY: fmt
fmt: ## Format every Go file.
	@hack/format.sh -w $(gofolders)

.PHONY: clean
clean: ## Remove bin/flotilla and what tests and demo left; keep the tools.
	rm -rf bin/flotilla bin/flotilla-bare _output

.PHONY: distclean
distclean: ## Remove everything that was built, the tools too.
	rm -rf bin _output
