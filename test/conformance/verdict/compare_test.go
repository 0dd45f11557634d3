package verdict

import (
	"bytes"
	"encoding/xml"
	"strings"
	"testing"
	"time"
)

// runOf returns a run of these tests' list with the given states. "-" is for a spec that did not
// run.
func runOf(system string, states ...string) Run {
	r := Run{System: system, First: Results{}, Took: time.Minute}
	for i, text := range list {
		if states[i] != "-" {
			r.First[text] = Outcome{State: states[i], Message: "because of " + states[i]}
		}
	}
	return r
}

var list = []string{"[sig-apps] one", "[sig-apps] two", "[sig-auth] three"}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		stock, fleet                  []string
		again                         Results
		broken, missing, inconclusive string
		err                           string
	}{
		"all pass": {
			stock: []string{"passed", "passed", "passed"}, fleet: []string{"passed", "passed", "passed"},
		},
		"one fails with the fleet": {
			stock: []string{"passed", "passed", "passed"}, fleet: []string{"passed", "failed", "passed"},
			broken: "[sig-apps] two", err: "1 specs of 3 fail with the fleet",
		},
		"one times out with the fleet, and again": {
			stock: []string{"passed", "passed", "passed"}, fleet: []string{"passed", "timedout", "passed"},
			again:  Results{"[sig-apps] two": {State: "failed"}},
			broken: "[sig-apps] two", err: "1 specs of 3 fail with the fleet",
		},
		"one passes when tried again": {
			stock: []string{"passed", "passed", "passed"}, fleet: []string{"passed", "failed", "passed"},
			again: Results{"[sig-apps] two": {State: "passed"}},
		},
		"all pass with the fleet, but only when tried again": {
			fleet: []string{"failed", "failed", "timedout"},
			again: Results{"[sig-apps] one": {State: "passed"}, "[sig-apps] two": {State: "passed"}, "[sig-auth] three": {State: "passed"}},
			err:   "3 specs of 3 more than with the stock controller manager passed only when tried again, at most 2 may",
		},
		"one skips itself with the fleet": {
			stock: []string{"passed", "passed", "passed"}, fleet: []string{"passed", "passed", "skipped"},
			broken: "[sig-auth] three", err: "1 specs of 3 fail with the fleet",
		},
		"one fails with both": {
			stock: []string{"passed", "passed", "failed"}, fleet: []string{"passed", "passed", "failed"},
			inconclusive: "[sig-auth] three",
		},
		"one fails with stock only": {
			stock: []string{"passed", "passed", "failed"}, fleet: []string{"passed", "passed", "passed"},
			inconclusive: "[sig-auth] three",
		},
		"one did not run with the fleet": {
			stock: []string{"passed", "passed", "passed"}, fleet: []string{"-", "passed", "passed"},
			missing: "[sig-apps] one", err: "1 specs of 3 did not run",
		},
		"one did not run with stock": {
			stock: []string{"-", "passed", "passed"}, fleet: []string{"passed", "passed", "passed"},
			missing: "[sig-apps] one", err: "1 specs of 3 did not run",
		},
		"the fleet alone, one fails": {
			fleet:  []string{"failed", "passed", "passed"},
			broken: "[sig-apps] one", err: "1 specs of 3 fail with the fleet",
		},
		"the fleet alone, nothing ran": {
			fleet:   []string{"-", "-", "-"},
			missing: "[sig-apps] one,[sig-apps] two,[sig-auth] three", err: "3 specs of 3 did not run",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var stock *Run
			if c.stock != nil {
				run := runOf("stock", c.stock...)
				stock = &run
			}
			fleet := runOf("fleet", c.fleet...)
			fleet.Again = c.again
			v := Judge(list, stock, fleet)
			requireTexts(t, "broken", v.Broken(), c.broken)
			requireTexts(t, "missing", v.Missing(), c.missing)
			requireTexts(t, "inconclusive", v.Inconclusive(), c.inconclusive)
			if err := v.Err(); c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			requireWritten(t, v, c.broken, c.missing, c.inconclusive)
		})
	}
}

func TestJudgeNothing(t *testing.T) {
	if err := Judge(nil, nil, Run{}).Err(); err == nil {
		t.Error("a list of no specs passes")
	}
}

// requireWritten checks that the table names the specs that need a look, and that JUnit counts the
// failures.
func requireWritten(t *testing.T, v Verdict, broken, missing, inconclusive string) {
	t.Helper()
	var table, junit, json bytes.Buffer
	for _, err := range []error{v.Print(&table), v.WriteJUnit(&junit), v.WriteJSON(&json)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for title, texts := range map[string]string{"FAIL WITH THE FLEET": broken, "DID NOT RUN": missing, "INCONCLUSIVE": inconclusive} {
		_, section, found := strings.Cut(table.String(), title)
		if found != (texts != "") {
			t.Errorf("section %q is present: %t, for %q, in\n%s", title, found, texts, &table)
		}
		for text := range strings.SplitSeq(texts, ",") {
			if !strings.Contains(section, text) {
				t.Errorf("section %q does not name %q:\n%s", title, text, &table)
			}
		}
	}
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Cases    []struct {
			Failure *struct{} `xml:"failure"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal(junit.Bytes(), &suite); err != nil {
		t.Fatal(err)
	}
	failures := 0
	for _, c := range suite.Cases {
		if c.Failure != nil {
			failures++
		}
	}
	want := len(v.Broken()) + len(v.Missing())
	if suite.Tests != len(list) || len(suite.Cases) != len(list) || suite.Failures != want || failures != want {
		t.Errorf("JUnit has %d tests, %d cases, %d and %d failures, want %d, %d, %d and %d",
			suite.Tests, len(suite.Cases), suite.Failures, failures, len(list), len(list), want, want)
	}
}

func TestTableCountsBySIG(t *testing.T) {
	stock := runOf("stock", "passed", "failed", "passed")
	fleet := runOf("fleet", "passed", "passed", "failed")
	fleet.Again = Results{"[sig-auth] three": {State: "passed"}}
	var b strings.Builder
	if err := Judge(list, &stock, fleet).Print(&b); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for line := range strings.Lines(b.String()) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	for i, want := range []string{
		"SIG SPECS PASSED WITH STOCK PASSED WITH THE FLEET",
		"sig-apps 2 1 2", "sig-auth 1 1 1 (1 when tried again)", "all 3 2 3 (1 when tried again)",
	} {
		if rows[i] != want {
			t.Errorf("row %d is %q, want %q", i, rows[i], want)
		}
	}
}

func requireTexts(t *testing.T, what string, specs []Spec, want string) {
	t.Helper()
	var texts []string
	for _, s := range specs {
		texts = append(texts, s.Text)
	}
	if got := strings.Join(texts, ","); got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}
