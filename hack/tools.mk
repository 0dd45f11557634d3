# Included by the root Makefile.

##@ Build

.PHONY: tools
tools: ## Build etcd, the stock Kubernetes components and kwok into bin/ (about 7 minutes the first time).
	@hack/build-tools.sh

##@ Check

.PHONY: verify-modules
verify-modules: ## Check that every k8s.io module is aligned with k8s.io/kubernetes.
	@hack/verify-modules.sh
