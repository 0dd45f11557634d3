package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// wholeLines copies a log without the lines that are not JSON, and returns how many those were.
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
