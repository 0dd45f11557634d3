#!/bin/sh
# Checks that the Go files below some folders are formatted, or formats them.
#
#   hack/format.sh [-w] FOLDER...
set -eu

cd "$(dirname "$0")/.."
# Beside the go command, for it is not always on the PATH.
gofmt=$(go env GOROOT)/bin/gofmt
if [ "$1" = -w ]; then
	exec "$gofmt" -l "$@"
fi
files=$("$gofmt" -l "$@")
if [ -n "$files" ]; then
	echo "format: not formatted; 'make fmt' does it:" >&2
	echo "$files" >&2
	exit 1
fi
