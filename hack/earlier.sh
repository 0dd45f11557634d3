#!/usr/bin/env bash
# Usage: hack/earlier.sh COMMIT VERSION [FLAG OF GO BUILD...]
# Builds bin/earlier/flotilla: an earlier commit of this repository, under another version of the same minor one. It is for
# a fleet of two builds. Where git cannot read the commit, as in a shallow clone, it is the present code under that version:
# the tests then see two versions, and no two builds of different code. With STRICT=1 that is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
commit=$1 version=$2
shift 2
# The name begins the User-Agent, so it must be that of the present build.
out=$PWD/bin/earlier/flotilla stamp=$PWD/bin/earlier/.stamp
if found=$(git rev-parse --verify "$commit^{commit}" 2>&1); then
	commit=$found
	built="$commit $version $* $(go env GOVERSION GOFLAGS | tr '\n' ' ')$(cksum <hack/earlier.sh)"
	[ "$(cat "$stamp" 2>/dev/null)" = "$built" ] && [ -x "$out" ] && exit 0
	source=$PWD/_output/earlier
	rm -rf "$source"
	mkdir -p "$source"
	trap 'rm -rf "$source"' EXIT
	git archive "$commit" | tar -x -C "$source"
elif [ "${STRICT:-}" = 1 ]; then
	echo "earlier: git cannot read commit $commit of this clone, so there is no earlier build to test with: $found" >&2
	exit 1
else
	echo "earlier: git cannot read commit $commit of this clone, so the present code is built as $version: $found"
	source=$PWD built= commit=
fi
mkdir -p bin/earlier
IFS=. read -r major minor _ <<<"${version#v}"
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags="$flags -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor -X $package.gitCommit=$commit"
done
(cd "$source" && go build "$@" -ldflags "$flags" -o "$out" ./cmd/flotilla)
echo "$built" >"$stamp"
