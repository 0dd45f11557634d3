package main

import (
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/test/conformance/spec"
	"github.com/flotilla-kube/flotilla/test/conformance/verdict"
)

func TestParseFlags(t *testing.T) {
	o, err := parseFlags(nil, io.Discard)
	if err != nil || o.runs != 1 || o.members != 3 {
		t.Errorf("the defaults are %+v, %v", o, err)
	}
	if o, err := parseFlags([]string{"-generate"}, io.Discard); err != nil || o.runs != 2 {
		t.Errorf("-generate: %d runs, %v, want 2: a spec must pass twice", o.runs, err)
	}
	for _, c := range []struct{ args, want string }{
		{"-short -disturb", "exclude each other"},
		{"-runs=-1", "-runs is -1"},
		{"-procs=65", "-procs is 65, must be from 1 to 64"},
		{"-nodes=1", "-nodes is 1"},
		{"-disturb -members=1", "at least 2"},
		{"-only=(", "-only"},
		{"-timeout=1s", "-timeout is 1s"},
		{"specs.txt", "unexpected argument"},
	} {
		if _, err := parseFlags(strings.Fields(c.args), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.args, err, c.want)
		}
	}
}

// TestListsOfTheRepository checks that every spec of the short list is in the long one, and that
// neither has a flaky one.
func TestListsOfTheRepository(t *testing.T) {
	kept, short := readList(t, "specs.txt"), readList(t, "short.txt")
	for _, text := range short {
		if !slices.Contains(kept, text) {
			t.Errorf("short.txt names %q, which is not in specs.txt", text)
		}
	}
	flaky, err := os.ReadFile("flaky.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(flaky)) {
		if text, _, found := strings.Cut(line, " | "); found && slices.Contains(kept, text) {
			t.Errorf("%q is in specs.txt and in flaky.txt", text)
		}
	}
	// The lists are sorted so that the diff of a new generation shows which specs came and went.
	if !slices.IsSorted(kept) {
		t.Error("specs.txt is not sorted")
	}
}

func readList(t *testing.T, name string) []string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	texts, err := spec.ReadList(file)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return texts
}

func TestSift(t *testing.T) {
	flaky := map[string]string{}
	first := verdict.Results{"a": {State: "passed"}, "b": {State: "passed"}, "c": {State: "failed"}, "d": {State: "passed"}}
	left := sift([]string{"a", "b", "c", "d", "e"}, first, 0, flaky)
	if !slices.Equal(left, []string{"a", "b", "d"}) || len(flaky) > 0 {
		t.Errorf("after one run %v are left and %v are flaky", left, flaky)
	}
	second := verdict.Results{"a": {State: "passed"}, "b": {State: "failed", Message: "too late"}}
	left = sift(left, second, 1, flaky)
	if !slices.Equal(left, []string{"a"}) || len(flaky) != 2 {
		t.Errorf("after two runs %v are left and %v are flaky", left, flaky)
	}
	if want := "passed with stock 1 times, then failed: too late"; flaky["b"] != want {
		t.Errorf("the reason is %q, want %q", flaky["b"], want)
	}
}

func TestGitVersion(t *testing.T) {
	for output, want := range map[string]string{`{1 37 v1.37.1 }`: "v1.37.1", "v1.38.0-rc.1\n": "v1.38.0-rc.1", "": "unknown version"} {
		if got := gitVersion(output); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
}

func TestFleetIsWhole(t *testing.T) {
	for name, c := range map[string]struct{ status, want string }{
		"whole":       {`{"rings":[{"shards":[{"shard":"a","state":"running","holder":"x"},{"shard":"b","state":"running","holder":"y"}]}]}`, ""},
		"unowned":     {`{"rings":[{"shards":[{"shard":"a","state":"running","holder":"x"},{"shard":"b","state":"unowned","holder":"y"}]}]}`, "shard b is unowned"},
		"a dead one":  {`{"rings":[{"shards":[{"shard":"a","state":"running","holder":"x","incarnation":"z#1"}]}]}`, "which was killed"},
		"all at one":  {`{"rings":[{"shards":[{"shard":"a","state":"running","holder":"x"},{"shard":"b","state":"running","holder":"x"}]}]}`, "held by 1 of 2"},
		"not yet any": {`{}`, "0 shards"},
	} {
		var status fleetStatus
		if err := json.Unmarshal([]byte(c.status), &status); err != nil {
			t.Fatal(err)
		}
		if err := status.whole(2, map[string]bool{"z#1": true}); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestSchedule(t *testing.T) {
	deal := func(seed int64) (all []disturbance) {
		s := newSchedule(seed, 3)
		for range 100 {
			all = append(all, s.next())
		}
		return all
	}
	first := deal(1)
	if !slices.Equal(first, deal(1)) {
		t.Error("the same seed gives another schedule")
	}
	if slices.Equal(first, deal(2)) {
		t.Error("another seed gives the same schedule")
	}
	victims, rolls := map[int]bool{}, 0
	for _, d := range first {
		if d.after < shortestPause || d.after > longestPause {
			t.Errorf("%v: the fleet is left alone for %v", d, d.after)
		}
		if d.roll {
			rolls++
			continue
		}
		victims[d.victim] = true
		if d.victim < 0 || d.victim > 2 || d.away < shortestAway || d.away > longestAway {
			t.Errorf("%v: out of bounds", d)
		}
	}
	if len(victims) != 3 || rolls != 25 {
		t.Errorf("%d members were killed and %d of 100 steps roll, want 3 and 25", len(victims), rolls)
	}
	if got := (disturbance{victim: 1, away: 2500 * time.Millisecond}).String(); got != "kill flotilla-1, away for 2.5 s" {
		t.Errorf("printed as %q", got)
	}
}
