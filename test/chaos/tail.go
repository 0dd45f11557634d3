package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/flotilla-kube/flotilla/test/command"
)

// tailInterval is how often the end of the audit log is looked at.
const tailInterval = 100 * time.Millisecond

// tail feeds a journal from the audit log as it grows.
type tail struct {
	path    string
	journal *journal
}

// Run reads until ctx ends.
func (t *tail) Run(ctx context.Context) error {
	file, err := os.Open(t.path)
	if err != nil {
		return err
	}
	defer file.Close()
	reader := bufio.NewReaderSize(file, 1<<20)
	var line []byte
	for {
		part, err := reader.ReadBytes('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			var e entry
			// A server that is killed may leave half a line.
			if json.Unmarshal(line, &e) == nil {
				t.journal.add(e)
			}
			line = line[:0]
		case !errors.Is(err, io.EOF):
			return err
		case !command.Pause(ctx, tailInterval):
			return nil
		}
	}
}

// wholeLines copies a log without the lines that are no JSON, and returns how many those were.
func wholeLines(to io.Writer, from io.Reader) (broken int, err error) {
	reader := bufio.NewReaderSize(from, 1<<20)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			if len(bytes.TrimSpace(line)) > 0 {
				broken++
			}
			return broken, nil
		}
		if err != nil {
			return broken, err
		}
		if !json.Valid(line) {
			broken++
			continue
		}
		if _, err := to.Write(line); err != nil {
			return broken, err
		}
	}
}
