#!/bin/sh
# Builds the binaries that the demo and the tests run against into bin/, one after another: etcd, the stock
# Kubernetes components and kwok, at the versions pinned in hack/tools/*/go.mod.
#
#   hack/build-tools.sh              all of them
#   hack/build-tools.sh etcd kwok    only these
#   hack/build-tools.sh staticcheck  the linter, which is built only when it is named
#   hack/build-tools.sh promtool     so are promtool, prometheus and promexpr, for the tests of deploy/monitoring
#   hack/build-tools.sh plot         the plotter of benchmark results, for `make bench-report`
#   hack/build-tools.sh helm         helm, for the tests of deploy/chart
#   hack/build-tools.sh e2e.test ginkgo   upstream's end-to-end specs and their runner, for the step conformance
#   hack/build-tools.sh kubeadm kubelet   and kube-proxy, containerd, containerd-shim-runc-v2, ctr, bridge and host-local: a
#                                         node, for the step kubeadm
#
# A binary is built when it is missing, or when its stamp in bin/.stamps is not that of the present go.mod,
# go.sum, build flags and Go version. Needs go, git and a POSIX shell.
set -eu

cd "$(dirname "$0")/.."
root=$(pwd)
bin=$root/bin
stamps=$bin/.stamps
all='etcd kube-apiserver kube-scheduler kubectl kube-controller-manager kwok'
node='kubeadm kubelet kube-proxy containerd containerd-shim-runc-v2 ctr bridge host-local'

# The components report this version to clients; without the stamp they all say v0.0.0.
kubernetes=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' hack/tools/kubernetes/go.mod)
if [ -z "$kubernetes" ]; then
	echo "build-tools: hack/tools/kubernetes/go.mod does not require k8s.io/kubernetes" >&2
	exit 1
fi
major=$(echo "$kubernetes" | sed 's/^v\([0-9]*\)\..*/\1/')
minor=$(echo "$kubernetes" | sed 's/^v[0-9]*\.\([0-9]*\)\..*/\1/')
version=k8s.io/component-base/version
ldflags="-s -w -X $version.gitVersion=$kubernetes -X $version.gitMajor=$major -X $version.gitMinor=$minor"

# Static binaries, whatever the machine's C compiler; and the same build cache entries for everybody.
export CGO_ENABLED=0
export GOWORK=off

# describe NAME sets module, package, how (build, or test for a package of tests) and cold (seconds of a first build on
# two cores).
describe() {
	module=hack/tools/kubernetes tags= how=build
	case $1 in
	etcd) package=go.etcd.io/etcd/server/v3 cold=36 ;;
	kube-apiserver) package=k8s.io/kubernetes/cmd/kube-apiserver cold=216 ;;
	kube-scheduler) package=k8s.io/kubernetes/cmd/kube-scheduler cold=40 ;;
	kubectl) package=k8s.io/kubernetes/cmd/kubectl cold=19 ;;
	kube-controller-manager) package=k8s.io/kubernetes/cmd/kube-controller-manager cold=45 ;;
	kwok) module=hack/tools/kwok package=sigs.k8s.io/kwok/cmd/kwok cold=61 ;;
	staticcheck) module=hack/tools/lint package=honnef.co/go/tools/cmd/staticcheck cold=25 ;;
	helm) module=hack/tools/helm package=helm.sh/helm/v4/cmd/helm cold=110 ;;
	e2e.test) module=hack/tools/conformance package=k8s.io/kubernetes/test/e2e how=test cold=105 ;;
	plot) module=hack/tools/plot package=./ cold=32 ;;
	ginkgo) module=hack/tools/conformance package=github.com/onsi/ginkgo/v2/ginkgo cold=5 ;;
	# Without the service discoveries, which are most of what there is to compile, and without a web page.
	prometheus) module=hack/tools/prometheus package=github.com/prometheus/prometheus/cmd/prometheus tags=remove_all_sd cold=45 ;;
	promtool) module=hack/tools/prometheus package=github.com/prometheus/prometheus/cmd/promtool tags=remove_all_sd cold=95 ;;
	promexpr) module=hack/tools/prometheus package=./promexpr tags=remove_all_sd cold=20 ;;
	kubeadm | kubelet | kube-proxy) module=hack/tools/kubeadm package=k8s.io/kubernetes/cmd/$1 cold=60 ;;
	containerd | containerd-shim-runc-v2 | ctr)
		module=hack/tools/containerd package=github.com/containerd/containerd/v2/cmd/$1 cold=60
		# Snapshotters that need libraries or file systems of their own.
		tags=no_aufs,no_btrfs,no_devmapper,no_zfs
		;;
	bridge) module=hack/tools/containerd package=github.com/containernetworking/plugins/plugins/main/bridge cold=5 ;;
	host-local) module=hack/tools/containerd package=github.com/containernetworking/plugins/plugins/ipam/host-local cold=5 ;;
	*)
		echo "build-tools: no tool is called $1; there are: $all staticcheck helm promtool prometheus promexpr e2e.test ginkgo plot $node" >&2
		exit 2
		;;
	esac
}

# key prints the hash of everything that decides what the binary would be.
key() {
	{
		cat "$module/go.mod" "$module/go.sum"
		echo "$package -trimpath -buildvcs=false $ldflags${tags:+ -tags=$tags}"
		# A package of this repository, whose version no go.mod pins.
		case $package in ./*) cat "$module/$package"/*.go ;; esac
		# GOFLAGS is in, for it may carry build tags.
		(cd "$module" && go env GOVERSION GOOS GOARCH GOFLAGS CGO_ENABLED)
	} | git hash-object --stdin
}

build() {
	name=$1 position=$2
	describe "$name"
	want=$(key)
	if [ -x "$bin/$name" ] && [ "$(cat "$stamps/$name" 2>/dev/null)" = "$want" ]; then
		echo "[$position] $name: up to date"
		return
	fi
	echo "[$position] $name: building (first time about $cold s on two cores, seconds when cached)"
	began=$(date +%s)
	# No stamp while the build runs: an interrupted build must not pass for a finished one.
	rm -f "$stamps/$name"
	case $how in
	build) set -- build -C "$module" ;;
	test) set -- test -C "$module" -c -vet=off ;;
	esac
	go "$@" -trimpath -buildvcs=false ${tags:+-tags=$tags} -ldflags "$ldflags" -o "$bin/$name" "$package" || {
		echo "[$position] $name: not built" >&2
		failed="$failed $name"
		return
	}
	echo "$want" >"$stamps/$name"
	echo "[$position] $name: built in $(($(date +%s) - began)) s"
}

for tool in go git; do
	command -v "$tool" >/dev/null 2>&1 || {
		echo "build-tools: $tool is needed and not on the PATH" >&2
		exit 1
	}
done

[ $# -gt 0 ] || set -- $all
for name in "$@"; do
	describe "$name" # a misspelt name must fail before minutes of building, not after
done
mkdir -p "$stamps"
n=0 failed=
start=$(date +%s)
for name in "$@"; do
	n=$((n + 1))
	build "$name" "$n of $#"
done
[ -z "$failed" ] || {
	echo "build-tools: not built:$failed" >&2
	exit 1
}
echo "tools: $# in bin/ after $(($(date +%s) - start)) s"
