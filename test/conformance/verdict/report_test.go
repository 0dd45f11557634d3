package verdict

import (
	"os"
	"strings"
	"testing"
	"time"
)

// testdata/report.json is the report of a run of seven specs, without their output.
func TestParseReport(t *testing.T) {
	file, err := os.Open("testdata/report.json")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	results, err := ParseReport(file)
	if err != nil {
		t.Fatal(err)
	}
	// The report lists specs that were not selected. The results must not have them.
	if len(results) != 3 {
		t.Errorf("%d specs ran, want 3: %v", len(results), results)
	}
	passes := results["[sig-apps] ReplicaSet Replace and Patch tests [Conformance]"]
	if !passes.Passed() || passes.Took.Round(time.Second) != 5*time.Second || passes.Message != "" {
		t.Errorf("a passed spec is read as %+v", passes)
	}
	fails := results["[sig-apps] ReplicaSet should serve a basic image on each replica with a public image [Conformance]"]
	if fails.Passed() || fails.State != "failed" || !strings.Contains(fails.Message, "checking pod responses") {
		t.Errorf("a failed spec is read as %+v", fails)
	}
}

func TestParseReportFaults(t *testing.T) {
	const spec = `{"LeafNodeType":"It","LeafNodeText":"a","State":"passed","NumAttempts":1}`
	for name, c := range map[string]struct{ report, want string }{
		"no report":       {``, "EOF"},
		"setup failed":    {`[{"SpecReports":[{"LeafNodeType":"SynchronizedBeforeSuite","State":"failed","Failure":{"Message":"no nodes"}}]}]`, "no nodes"},
		"timeout":         {`[{"SpecialSuiteFailureReasons":["Suite Timeout Elapsed"],"SpecReports":[` + spec + `]}]`, "Suite Timeout Elapsed"},
		"a text twice":    {`[{"SpecReports":[` + spec + `,` + spec + `]}]`, `two specs have the text "a"`},
		"nothing amiss":   {`[{"SpecReports":[` + spec + `]}]`, ""},
		"skipped itself":  {`[{"SpecReports":[{"LeafNodeType":"It","LeafNodeText":"a","State":"skipped","NumAttempts":1,"Failure":{"Message":"needs ssh"}}]}]`, ""},
		"a suite of none": {`[]`, ""},
	} {
		results, err := ParseReport(strings.NewReader(c.report))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		if name == "skipped itself" && results["a"].State != "skipped" {
			t.Errorf("%s: read as %v", name, results)
		}
	}
}
