#!/bin/sh
# Checks that the modules which import k8s.io/kubernetes see the same k8s.io modules as Kubernetes itself:
#
#   1. the go.mod replaces exactly the staging modules that k8s.io/kubernetes replaces in its own go.mod, each by
#      itself at v0.X.Y for Kubernetes v1.X.Y, and no other k8s.io module;
#   2. direct requirements on staging modules name v0.X.Y; indirect ones (which the replace lines override) name
#      v0.0.0 or a v0.X release;
#   3. the k8s.io modules that are not staged (klog, kube-openapi, utils) have the version that Kubernetes requires;
#   4. every go.mod checked requires the same Kubernetes;
#   5. the examples, which are modules as adopters have them, name v0.X.Y directly, a v0.X release indirectly, and
#      have k8s.io/kubernetes neither in their go.mod nor in their go.sum.
#
#   hack/verify-modules.sh [go.mod...]   default: the root's and those of hack/tools/kubernetes, kubeadm and conformance
set -eu

cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- go.mod hack/tools/kubernetes/go.mod hack/tools/kubeadm/go.mod hack/tools/conformance/go.mod

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
fail() {
	echo "verify-modules: $*" >&2
	failed=1
}

# requires FILE prints "module version direct|indirect" for each k8s.io requirement.
requires() {
	awk '/^require \(/ { block = 1; next } block && /^\)/ { block = 0 }
		/^require [^(]/ { $1 = ""; $0 = substr($0, 2) ; print_it() ; next }
		block { print_it() }
		function print_it() { if ($1 ~ /^k8s\.io\//) print $1, $2, ($0 ~ /\/\/ indirect/ ? "indirect" : "direct") }' "$1"
}

# replaces FILE prints each k8s.io replace line as "old => new".
replaces() {
	awk '/^replace \(/ { block = 1; next } block && /^\)/ { block = 0 }
		/^replace [^(]/ { $1 = ""; $0 = substr($0, 2) ; print_it() ; next }
		block { print_it() }
		function print_it() { sub(/\/\/.*/, ""); $1 = $1; if ($1 ~ /^k8s\.io\//) print }' "$1" | sort
}

kubernetes=$(requires "$1" | awk '$1 == "k8s.io/kubernetes" { print $2 }')
case $kubernetes in
v1.*.*) ;;
*)
	echo "verify-modules: $1 does not require a k8s.io/kubernetes v1.X.Y, but '$kubernetes'" >&2
	exit 1
	;;
esac
staging=v0.${kubernetes#v1.}
minor=${staging%.*}
upstream=$(GOWORK=off go mod download -json "k8s.io/kubernetes@$kubernetes" | sed -n 's/^[[:space:]]*"GoMod": "\(.*\)",*$/\1/p')
if [ ! -s "$upstream" ]; then
	echo "verify-modules: no go.mod of k8s.io/kubernetes $kubernetes to be had" >&2
	exit 1
fi
replaces "$upstream" | awk -v v="$staging" '{ print $1, "=>", $1, v }' >"$tmp/want"
requires "$upstream" >"$tmp/upstream"
if [ ! -s "$tmp/want" ]; then
	echo "verify-modules: $upstream has no replace block" >&2
	exit 1
fi

for file in "$@"; do
	replaces "$file" >"$tmp/got"
	diff "$tmp/want" "$tmp/got" >"$tmp/diff" || {
		fail "$file: the replace lines are not those of Kubernetes $kubernetes (< is wanted, > is there):"
		grep '^[<>]' "$tmp/diff" >&2
	}
	requires "$file" >"$tmp/requires"
	awk -v file="$file" -v v="$staging" -v minor="$minor." -v kubernetes="$kubernetes" '
		function bad(want) { printf "verify-modules: %s: %s is required at %s, not %s\n", file, $1, $2, want; failed = 1 }
		FILENAME == ARGV[1] { staged[$1] = 1; next }
		FILENAME == ARGV[2] { upstream[$1] = $2; next }
		$1 == "k8s.io/kubernetes" { seen = 1; if ($2 != kubernetes) bad(kubernetes); next }
		$1 in staged {
			if ($3 == "direct" && $2 != v) bad(v)
			if ($3 == "indirect" && $2 != "v0.0.0" && index($2, minor) != 1) bad("v0.0.0 or " minor "*")
			next
		}
		$1 in upstream { if ($2 != upstream[$1]) bad(upstream[$1]); next }
		END {
			if (!seen) { printf "verify-modules: %s: k8s.io/kubernetes is not required\n", file; failed = 1 }
			exit failed
		}' "$tmp/want" "$tmp/upstream" "$tmp/requires" >&2 || failed=1
done

for file in examples/*/go.mod; do
	requires "$file" | awk -v file="$file" -v v="$staging" -v minor="$minor." '
		function bad(want) { printf "verify-modules: %s: %s is required at %s, not %s\n", file, $1, $2, want; failed = 1 }
		FILENAME == ARGV[1] { staged[$1] = 1; next }
		!($1 in staged) { next }
		$3 == "direct" && $2 != v { bad(v) }
		$3 == "indirect" && index($2, minor) != 1 { bad(minor "*") }
		END { exit failed }' "$tmp/want" - >&2 || failed=1
	if grep -q '^k8s\.io/kubernetes ' "${file%.mod}.sum" || requires "$file" | grep -q '^k8s\.io/kubernetes '; then
		fail "$file: k8s.io/kubernetes is required, or in the go.sum: an adopter would have to repeat its replace lines"
	fi
done

[ $failed -eq 0 ] && echo "verify-modules: $# go.mod aligned with Kubernetes $kubernetes ($(wc -l <"$tmp/want" | tr -d ' ') staging modules at $staging)"
exit $failed
