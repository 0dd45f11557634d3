#!/bin/sh
# Checks that every Go file is formatted, or with -w formats them.
set -eu

cd "$(dirname "$0")/.."
# Beside the go command, for it is not always on the PATH.
gofmt=$(go env GOROOT)/bin/gofmt
if [ "${1:-}" = -w ]; then
	exec "$gofmt" -l -w cmd deploy docs examples hack internal pkg test
fi
files=$("$gofmt" -l cmd deploy docs examples hack internal pkg test)
if [ -n "$files" ]; then
	echo "format: not formatted; 'make fmt' does it:" >&2
	echo "$files" >&2
	exit 1
fi
