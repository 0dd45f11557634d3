package measure

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseHeap returns the bytes of heap in use, from the text of /debug/pprof/heap?gc=1&debug=1. With
// gc=1 that is what survived a collection, and what was allocated since.
func ParseHeap(text string) (uint64, error) {
	// The figures of runtime.MemStats are at the end, after every stack.
	for line := range strings.Lines(text) {
		if rest, found := strings.CutPrefix(line, "# HeapAlloc = "); found {
			n, err := strconv.ParseUint(strings.TrimSpace(rest), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("HeapAlloc: %w", err)
			}
			return n, nil
		}
	}
	return 0, errors.New(`no line "# HeapAlloc = ": the text is not of /debug/pprof/heap?debug=1`)
}
