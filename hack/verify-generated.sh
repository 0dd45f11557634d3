#!/bin/sh
# Checks that what is generated is up to date: every go.mod is tidy, and `go generate` changes no file. What a generator
# changed stays changed, to be looked at and committed.
set -eu

cd "$(dirname "$0")/.."
export GOWORK=off
failed=0

for file in $(git ls-files -co --exclude-standard 'go.mod' '*/go.mod'); do
	go -C "$(dirname "$file")" mod tidy -diff || {
		echo "verify-generated: $file: 'go mod tidy' would change it or its go.sum as above" >&2
		failed=1
	}
done

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# The state of every file that is not ignored, committed or not.
state() {
	git ls-files -co --exclude-standard | sort -u | while IFS= read -r file; do
		[ ! -f "$file" ] || echo "$(git hash-object "$file") $file"
	done
}
state >"$tmp/before"
go generate ./...
state >"$tmp/after"
diff "$tmp/before" "$tmp/after" >"$tmp/diff" || {
	echo "verify-generated: 'go generate ./...' changed:" >&2
	sed -n 's/^[<>] [0-9a-f]* /  /p' "$tmp/diff" | sort -u >&2
	failed=1
}

[ $failed -eq 0 ] && echo "verify-generated: go.mod files and generated files are up to date"
exit $failed
