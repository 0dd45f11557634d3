# Everything that is run in this repository, by hand or by CI. Needs Go, git and GNU make, and no C compiler.
# Lines that end in "## text" are listed by `make help`, under the "##@ group" above them.

.DEFAULT_GOAL := help

# One build at a time: each one uses all cores already.
.NOTPARALLEL:

export CGO_ENABLED = 0
export GOWORK = off

# The version that bin/flotilla reports is that of the controllers in it, as kube-controller-manager would say it. A
# release adds its own number: N=1 is v1.37.1-flotilla.1.
KUBERNETES := $(shell awk '$$1 == "k8s.io/kubernetes" { print $$2; exit }' go.mod)
numbers := $(subst ., ,$(KUBERNETES:v%=%))
stamp := k8s.io/component-base/version
# client-go's, which stands in the User-Agent.
agent := k8s.io/client-go/pkg/version
commit = $(shell git rev-parse HEAD 2>/dev/null)
tree = $(if $(shell git status --porcelain 2>/dev/null),dirty,clean)
# No build date: the same commit gives the same binary.
VERSION ?= $(KUBERNETES)$(if $(N),-flotilla.$(N))
LDFLAGS = -s -w -X $(stamp).gitVersion=$(VERSION) \
	-X $(stamp).gitMajor=$(word 1,$(numbers)) -X $(stamp).gitMinor=$(word 2,$(numbers)) \
	-X $(agent).gitVersion=$(VERSION) \
	$(if $(commit),-X $(stamp).gitCommit=$(commit) -X $(stamp).gitTreeState=$(tree) -X $(agent).gitCommit=$(commit))

# The same flags as in hack/build-tools.sh and hack/steps, so that everything is compiled once for tools, tests and linters.
GOBUILD := -trimpath -buildvcs=false
gobuild = go build $(GOBUILD) -ldflags '$(strip $(LDFLAGS))'
# Runs what the test targets consist of: hack/steps/sets.go has the steps.
# Not go run, which a signal to make would end, and not what it runs.
steps := @go build $(GOBUILD) -o bin/steps ./hack/steps && exec bin/steps

##@ Try it

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make <target>" } \
		/^##@ / { group = substr($$0, 5); if (!(group in lines)) order[++n] = group } \
		/^[a-z][a-z0-9-]*:.*## / { lines[group] = lines[group] sprintf("  %-12s %s\n", $$1, $$2) } \
		END { for (i = 1; i <= n; i++) printf "%s\n%s", order[i], lines[order[i]] }' $(MAKEFILE_LIST)

# ARGS="-once" goes once through and out.
.PHONY: demo
demo: tools build ## Run a fleet on a real control plane on this machine.
	go run $(GOBUILD) ./test/demo $(ARGS)

.PHONY: demo-once
demo-once: override ARGS += -once
demo-once: demo ## The same, once through and out, without waiting for keys.

##@ Build

.PHONY: build
build: ## Build bin/flotilla (3 minutes at first, seconds after a change).
	$(gobuild) -o bin/flotilla ./cmd/flotilla

# Without metrics, events, journal and status page, for the step "overhead".
.PHONY: bin/flotilla-bare
bin/flotilla-bare:
	$(gobuild) -tags bare -o $@ ./cmd/flotilla

# The earliest commit whose members keep their shards, and whose plan is, as those of today. Once there are releases: the last one before this.
EARLIER ?= 1e0ff38
EARLIER_VERSION ?= v1.37.0
.PHONY: earlier
earlier: # bin/earlier/flotilla, for a fleet of two versions.
	@hack/earlier.sh $(EARLIER) $(EARLIER_VERSION) $(GOBUILD)

# It seems to be of an earlier or later version, by FLOTILLA_CATALOGUE. What it is called begins the User-Agent.
.PHONY: bin/planted/flotilla
bin/planted/flotilla:
	$(gobuild) -tags planted -o $@ ./cmd/flotilla

.PHONY: tools
tools: ## Build etcd, stock Kubernetes and kwok (7 minutes at first).
	@hack/build-tools.sh

# N=1 for v1.37.1-flotilla.1; PLATFORMS="linux/amd64" for one platform.
# The Go release of go.mod's minor version that is installed decides the bytes, too.
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
.PHONY: release
release: ## Write a release to _output/release (N=1 for the first one).
	go run $(GOBUILD) ./hack/release -version '$(VERSION)' -kubernetes '$(KUBERNETES)' -platforms '$(PLATFORMS)' -ldflags '$(strip $(LDFLAGS))' $(ARGS)

##@ Test

.PHONY: check
check: ## Before a commit: format, vet, lint, short unit tests (a minute).
	$(steps) check

.PHONY: test
test: ## What a release must not break (11 minutes; 30 at first).
	$(steps) test

.PHONY: test-all
test-all: ## Everything there is (an hour and a quarter).
	$(steps) test-all

# ARGS="-stages static -stay" runs one stage and keeps its cluster.
.PHONY: kubeadm
kubeadm: ## A fleet in real kubeadm clusters on this machine; takes root.
	$(steps) kubeadm $(if $(ARGS),-- $(ARGS))

# ARGS go to the step's last command.
.PHONY: long
long: ## Some steps alone, such as RUN=handoffs; without RUN, their list.
	$(steps) $(or $(RUN),help) $(if $(ARGS),-- $(ARGS))

##@ Measure

# What to measure, in which sizes and how often is for flags. Wants an idle machine.
# ARGS="-scenarios basic -rates default,high -out FILE.json"
.PHONY: bench
bench: tools build ## Stock and fleets of 1, 2 and 4 at the same work, in turn.
	go run $(GOBUILD) ./test/bench $(ARGS)

# RESULTS="file..." for other results. Pictures of results that are gone must go too.
RESULTS ?= $(wildcard docs/benchmarks/results/*.json)
.PHONY: bench-report
bench-report: ## Write the tables and pictures of docs/benchmarks from results.
	@hack/build-tools.sh plot
	@mkdir -p _output
	go run $(GOBUILD) ./test/bench/report/page -plots _output/plots.json $(RESULTS)
	@rm -f docs/benchmarks/*.svg
	bin/plot -out docs/benchmarks _output/plots.json

##@ Keep tidy

.PHONY: verify
verify: ## Check modules, go.mod files and generated files.
	@hack/verify-modules.sh
	@hack/verify-generated.sh

.PHONY: fmt
fmt: ## Format every Go file.
	@hack/format.sh -w

.PHONY: clean
clean: ## Remove bin/flotilla and what tests and demo left, not the tools.
	rm -rf bin/flotilla bin/flotilla-bare _output

.PHONY: distclean
distclean: ## Remove everything that was built, the tools too.
	rm -rf bin _output
