package leaseapi

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// maxBy is the maximum length of the name in a [Stop], in bytes.
const maxBy = 256

// Stop says that an operator has stopped the fleet. On the Lease it is an RFC 3339 time and a name:
// "2026-11-24T08:50:00Z by alice@laptop". The " by" part may be missing.
type Stop struct {
	// Since is when the operator stopped it, by the operator's clock; zero if unknown.
	Since time.Time
	// By names who stopped it; empty if unknown.
	By string
}

// Annotation returns the value of StopAnnotation.
func (s Stop) Annotation() string {
	text := s.Since.UTC().Format(time.RFC3339)
	if s.By != "" {
		text += " by " + s.By
	}
	return text
}

// String returns the text that follows "stopped": " since ... by ...".
func (s Stop) String() string {
	text := ""
	if !s.Since.IsZero() {
		text = " since " + s.Since.UTC().Format(time.RFC3339)
	}
	if s.By != "" {
		text += " by " + s.By
	}
	return text
}

// ParseStop reads a value of StopAnnotation.
func ParseStop(text string) (Stop, error) {
	stamp, by, named := strings.Cut(text, " by ")
	since, err := time.Parse(time.RFC3339, stamp)
	switch {
	case err != nil:
		return Stop{}, fmt.Errorf("%q: must be a time as in RFC 3339, and may name who wrote it: %q", Shorten(text, maxBy), "2026-11-24T08:50:00Z by alice")
	case named && by == "":
		return Stop{}, fmt.Errorf("%q: must have a name after \"by\"", text)
	case len(by) > maxBy:
		return Stop{}, fmt.Errorf("%q: the name must not be longer than %d bytes", Shorten(text, maxBy), maxBy)
	case strings.ContainsFunc(by, func(r rune) bool { return !unicode.IsPrint(r) }):
		return Stop{}, fmt.Errorf("%q: the name must be printable text", text)
	}
	return Stop{Since: since, By: by}, nil
}

// StopOn returns the stop on the plan's Lease; nil if there is none. The error says why it cannot
// be read.
func StopOn(lease *coordinationv1.Lease) (*Stop, error) {
	if lease == nil {
		return nil, nil
	}
	text, stopped := lease.Annotations[StopAnnotation]
	if !stopped {
		return nil, nil
	}
	stop, err := ParseStop(text)
	if err != nil {
		return nil, fmt.Errorf("annotation %s of Lease %s: %w", StopAnnotation, lease.Name, err)
	}
	return &stop, nil
}
