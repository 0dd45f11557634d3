#!/bin/sh
# Runs a go test command with the race detector, which needs cgo: without a C compiler it says so and passes.
#
#   hack/race.sh go test [FLAG...] PACKAGE...
set -eu

cd "$(dirname "$0")/.."
cc=$(CGO_ENABLED=1 go env CC)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# A compiler without the C library's headers is of no use either.
printf '#include <stdlib.h>\n#include <pthread.h>\nint main(void) { return 0; }\n' >"$tmp/try.c"
if ! $cc -o "$tmp/try" "$tmp/try.c" >/dev/null 2>&1; then
	echo "==> race: SKIPPED, '$cc' builds no C program here, and the race detector needs one that does"
	exit 0
fi
shift 2
hack/step.sh race "tests under the race detector" "1 minute when compiled" env CGO_ENABLED=1 go test -race "$@"
