package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// printer writes lines with the elapsed time.
type printer struct {
	out   io.Writer
	began time.Time
	mu    sync.Mutex
}

func newPrinter(out io.Writer) *printer { return &printer{out: out, began: time.Now()} }

func (p *printer) printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := strings.TrimRight(fmt.Sprintf(format, args...), "\n")
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(p.out, "%7.1f %s\n", time.Since(p.began).Seconds(), line)
	}
}

// Write implements io.Writer, for the control plane's own lines.
func (p *printer) Write(text []byte) (int, error) {
	p.printf("      %s", text)
	return len(text), nil
}
