package main

import (
	"time"

	"golang.org/x/sys/unix"
)

// kind is the kind of a message from a crew.
type kind string

const (
	// hello is the first message of a crew.
	hello kind = "hello"
	// begun and ended are about the work of a shard.
	begun kind = "begun"
	ended kind = "ended"
	// listed is a request that reads all Leases, by a list or by a watch that begins with all of
	// them.
	listed kind = "listed"
	// watched is a watch that continues from a version.
	watched kind = "watched"
	// lost is a member whose membership has ended although nobody asked it to leave.
	lost kind = "lost"
	// answer is the answer to a question.
	answer kind = "answer"
)

// message is a line from a crew.
type message struct {
	Kind kind  `json:"k"`
	At   int64 `json:"t"`
	// Crew is set on a hello.
	Crew   string `json:"crew,omitempty"`
	Member string `json:"m,omitempty"`
	// Work is unique in a process; Range or Group is what it covers.
	Work  int64  `json:"w,omitempty"`
	Range string `json:"r,omitempty"`
	Group string `json:"g,omitempty"`
	Text  string `json:"x,omitempty"`

	ID     int64  `json:"id,omitempty"`
	Status status `json:"s,omitzero"`
}

// status is a crew's own status.
type status struct {
	Ready      int    `json:"ready"`
	Missing    string `json:"missing,omitempty"`
	Generation int64  `json:"generation"`
	Heap       uint64 `json:"heap"`
	Goroutines int    `json:"goroutines"`
	Received   int64  `json:"received"`
	Sent       int64  `json:"sent"`
}

// question is a line to a crew. The crew answers with its status, after a garbage collection if
// Collect is set. If Profile is set, the crew profiles its CPU to that file for Seconds, and
// answers at once.
type question struct {
	ID      int64  `json:"id"`
	Collect bool   `json:"collect,omitempty"`
	Profile string `json:"profile,omitempty"`
	Seconds int    `json:"seconds,omitempty"`
}

// monotonic returns the nanoseconds of a clock that all processes of the machine share.
func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("scale: CLOCK_MONOTONIC cannot be read: " + err.Error())
	}
	return ts.Nano()
}

func between(from, to int64) time.Duration { return time.Duration(to - from) }
