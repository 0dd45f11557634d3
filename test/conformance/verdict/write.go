package verdict

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
)

// WriteJSON writes the whole verdict.
func (v Verdict) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// The part of JUnit's format that all readers understand.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string     `xml:"classname,attr"`
		Name    string     `xml:"name,attr"`
		Time    string     `xml:"time,attr"`
		Failure *junitText `xml:"failure,omitempty"`
		Skipped *junitText `xml:"skipped,omitempty"`
	}
	junitText struct {
		Message string `xml:"message,attr"`
	}
)

// WriteJUnit writes the verdict in JUnit's format. Broken and missing specs are failures,
// inconclusive ones are skipped.
func (v Verdict) WriteJUnit(w io.Writer) error {
	suite := junitSuite{Name: "conformance", Tests: len(v.Specs), Time: fmt.Sprintf("%.3f", v.FleetTook.Seconds())}
	failures := map[string]bool{}
	for _, s := range append(v.Broken(), v.Missing()...) {
		failures[s.Text] = true
	}
	for _, s := range v.Specs {
		c := junitCase{Class: s.SIG, Name: s.Text, Time: fmt.Sprintf("%.3f", s.FleetTook.Seconds())}
		switch {
		case failures[s.Text]:
			suite.Failures++
			c.Failure = &junitText{Message: fmt.Sprintf("stock: %s, fleet: %s: %s", s.Stock, s.Fleet, shorten(s.FleetMessage))}
		case s.Stock == Failed:
			suite.Skipped++
			c.Skipped = &junitText{Message: "it fails with the stock controller manager: " + shorten(s.StockMessage)}
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	return encoder.Encode(suite)
}
