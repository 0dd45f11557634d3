package main

import (
	"errors"
	"flag"
	"strings"
	"testing"
)

func TestParseFlags(t *testing.T) {
	got, err := parseFlags([]string{"-once", "-nodes=3", "-replicas=5", "-shards=8", "-sharded-list-watch=false"}, t.Output())
	want := options{once: true, nodes: 3, replicas: 5, shards: 8}
	if err != nil || got != want {
		t.Errorf("options %+v, %v, want %+v", got, err, want)
	}
	if members := got.members(); len(members) != 5 || members[4] != "flotilla-4" {
		t.Errorf("members %v", members)
	}
	for _, bad := range []string{"-nodes=0", "-nodes=101", "-replicas=1", "-replicas=10", "-shards=0", "-shards=100000", "more"} {
		name, _, _ := strings.Cut(bad, "=")
		if _, err := parseFlags([]string{bad}, t.Output()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want an error that names it", bad, err)
		}
	}
	if _, err := parseFlags([]string{"-help"}, t.Output()); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-help: %v", err)
	}
}

func TestTimingIsValid(t *testing.T) {
	if err := timing.Validate(); err != nil {
		t.Error(err)
	}
}
