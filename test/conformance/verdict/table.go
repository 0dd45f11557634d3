package verdict

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// tally counts the specs of a group by their status.
type tally struct {
	specs, stock, stockAgain, fleet, fleetAgain int
}

func (v Verdict) tally(sig string) tally {
	var t tally
	for _, s := range v.Specs {
		if sig != "" && s.SIG != sig {
			continue
		}
		t.specs++
		count(s.Stock, &t.stock, &t.stockAgain)
		count(s.Fleet, &t.fleet, &t.fleetAgain)
	}
	return t
}

func count(s Status, passed, again *int) {
	if s.Good() {
		*passed++
	}
	if s == PassedAgain {
		*again++
	}
}

// Print writes the table by group, and below it every spec that needs a look.
func (v Verdict) Print(w io.Writer) error {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SIG\tSPECS\tPASSED WITH STOCK\tPASSED WITH THE FLEET")
	row := func(name string, t tally) {
		stock := "not run"
		if v.StockTook > 0 {
			stock = figure(t.stock, t.stockAgain)
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", name, t.specs, stock, figure(t.fleet, t.fleetAgain))
	}
	for _, sig := range v.SIGs() {
		row(sig, v.tally(sig))
	}
	row("all", v.tally(""))
	if err := table.Flush(); err != nil {
		return err
	}
	if v.StockTook > 0 {
		fmt.Fprintf(&b, "Wall clock: %v with stock, ", v.StockTook.Round(time.Second))
	} else {
		b.WriteString("Wall clock: ")
	}
	fmt.Fprintf(&b, "%v with the fleet\n", v.FleetTook.Round(time.Second))

	section(&b, "FAIL WITH THE FLEET", v.Broken())
	section(&b, "DID NOT RUN", v.Missing())
	section(&b, "INCONCLUSIVE: FAIL WITH STOCK, AND ARE IN THE LIST", v.Inconclusive())
	section(&b, "Passed when tried again", v.Again())
	_, err := io.WriteString(w, b.String())
	return err
}

func figure(passed, again int) string {
	if again == 0 {
		return fmt.Sprint(passed)
	}
	return fmt.Sprintf("%d (%d when tried again)", passed, again)
}

// messageLimit is how much of a failure is shown. The report has all of it.
const messageLimit = 400

func section(b *strings.Builder, title string, specs []Spec) {
	if len(specs) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s (%d):\n", title, len(specs))
	for _, s := range specs {
		fmt.Fprintf(b, "  %s\n", s.Text)
		said(b, "stock", s.Stock, s.StockMessage)
		said(b, "fleet", s.Fleet, s.FleetMessage)
	}
}

func said(b *strings.Builder, system string, status Status, message string) {
	if status == "" {
		return
	}
	line := string(status)
	if message != "" {
		line += ": " + shorten(message)
	}
	fmt.Fprintf(b, "    %s: %s\n", system, line)
}

// shorten turns a message into one line of bounded length.
func shorten(message string) string {
	line := []rune(strings.Join(strings.Fields(message), " "))
	if len(line) > messageLimit {
		return string(line[:messageLimit]) + "..."
	}
	return string(line)
}
