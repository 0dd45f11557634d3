package run

import (
	"fmt"
	"slices"
	"strings"

	"github.com/flotilla-kube/flotilla/test/docs/markdown"
)

// preamble tracks the current block, so that a failure names it. It asks for a stand-in with a line
// on descriptor 3. The answer on descriptor 4 is "ok" or an error.
const preamble = `set -euo pipefail
at=start
trap 'status=$?; if [ $status -ne 0 ]; then echo "docs: the block at $at failed with status $status: $BASH_COMMAND" >&2; fi' EXIT
stand_in() {
	echo "$1" >&3
	local answer
	IFS= read -r answer <&4
	if [ "$answer" != ok ]; then echo "docs: stand-in $1: $answer" >&2; return 1; fi
}
block() {
	at=$1
	printf '\n==> %s (%s s)\n' "$at" "$SECONDS"
}
`

// script joins the blocks to be run into one script, in order, and counts them. It leaves out
// blocks for test/kubeadm, except those with a stand-in.
func script(pages []markdown.Page, parts []markdown.Part, standIns []string) (text string, blocks int) {
	var b strings.Builder
	b.WriteString(preamble)
	for _, part := range parts {
		for _, p := range pages {
			for _, block := range p.Blocks {
				if !part.Has(block) {
					continue
				}
				if name := block.Kubeadm(); slices.Contains(standIns, name) {
					fmt.Fprintf(&b, "block %s\nstand_in %s\n", block.At(), name)
				} else if block.Runs() {
					fmt.Fprintf(&b, "block %s\n%s\n", block.At(), strings.Join(block.Lines, "\n"))
					blocks++
				}
			}
		}
	}
	b.WriteString("at=end\n")
	return b.String(), blocks
}
