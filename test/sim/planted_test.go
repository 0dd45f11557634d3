package sim

import (
	"flag"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

var planted = flag.Bool("planted", false, "build each planted bug and see it found, which takes minutes")

// TestPlantedBugsAreFound builds the checkers with one planted bug after the other, and wants each convicted, by the words
// that say what is wrong: a failure for another reason is none.
func TestPlantedBugsAreFound(t *testing.T) {
	if !*planted {
		t.Skip("takes minutes: make planted")
	}
	simulation := []string{"./test/sim", "-run", "TestSim$", "-seeds", "300"}
	for _, tc := range []struct {
		bug     string
		checker []string // of go test
		want    string   // a regular expression
	}{
		{"release_before_stop", simulation, `FAILED: .* releases .* while its work runs`},
		// A shard that waits for its ancestors, and is not told that its claim was lost, waits for ever.
		{"lost_lease_ignored", simulation, `FAILED: .* (writes to .* and has no valid claim|was told to exit|its Run has not returned)`},
		{"fence_off", simulation, `FAILED: .* writes to .* and has no valid claim`},
		{"ancestors_ignored", simulation, `FAILED: .* begins to work on .* while .* does on `},
		{"inheritance_stale", simulation, `FAILED: .* begins to work on .* with a cache at `},
		{"range_off_by_one", []string{"./pkg/shard", "-run", "TestRange|TestEqualRanges|TestPlan|TestShard"}, `--- FAIL: `},
		{"event_dropped", []string{"./pkg/shard/informer"}, `--- FAIL: `},
		{"release_before_stop", []string{"./pkg/election", "-run", "TestOneHolderUnderRandomFaults"}, `released at .* while its work ran`},
		{"fence_off", []string{"./pkg/election", "-run", "Fence"}, `--- FAIL: `},
		{"lost_lease_ignored", []string{"./pkg/election"}, `--- FAIL: `},
	} {
		t.Run(tc.bug+" by "+strings.TrimPrefix(tc.checker[0], "./"), func(t *testing.T) {
			began := time.Now()
			args := append([]string{"test", "-trimpath", "-buildvcs=false", "-vet=off", "-count=1", "-timeout=10m", "-tags", "plant_" + tc.bug}, tc.checker...)
			command := exec.CommandContext(t.Context(), "go", args...)
			command.Dir = "../.."
			out, err := command.CombinedOutput()
			found := regexp.MustCompile(tc.want).Find(out)
			if err == nil || found == nil {
				t.Fatalf("go %s: not convicted for %q:\n%s", strings.Join(args, " "), tc.want, last(string(out)))
			}
			t.Logf("found in %v: %s", time.Since(began).Round(time.Second), found)
			if runs := regexp.MustCompile(`\d+ seeds: `).Find(out); runs != nil {
				t.Logf("after %s", runs)
			}
		})
	}
}

// last is the end of a long text.
func last(text string) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-traceLines):], "\n")
}
