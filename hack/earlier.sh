#!/usr/bin/env bash
# Usage: hack/earlier.sh COMMIT VERSION [FLAG OF GO BUILD...]
# Builds bin/earlier/flotilla: an earlier commit of this repository, under another version of the same minor one. It is for
# a fleet of two builds. Where the commit is not in the history, as in a shallow clone, it is the present code under that
# version: the tests then see two versions, and no two builds of different code.
set -euo pipefail
cd "$(dirname "$0")/.."
commit=$1 version=$2
shift 2
# The name begins the User-Agent, so it must be that of the present build.
out=$PWD/bin/earlier/flotilla stamp=$PWD/bin/earlier/.stamp
built="$commit $version $* $(cksum <hack/earlier.sh)"
if git cat-file -e "$commit^{commit}" 2>/dev/null; then
	[ "$(cat "$stamp" 2>/dev/null)" = "$built" ] && [ -x "$out" ] && exit 0
	source=$PWD/_output/earlier
	rm -rf "$source"
	mkdir -p "$source"
	trap 'rm -rf "$source"' EXIT
	git archive "$commit" | tar -x -C "$source"
else
	echo "earlier: commit $commit is not in this clone's history: the present code is built as $version"
	source=$PWD built=
fi
mkdir -p bin/earlier
IFS=. read -r major minor _ <<<"${version#v}"
flags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags="$flags -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor -X $package.gitCommit=$commit"
done
(cd "$source" && go build "$@" -ldflags "$flags" -o "$out" ./cmd/flotilla)
echo "$built" >"$stamp"
