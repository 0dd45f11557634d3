package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Dashboard is the part of a Grafana dashboard that the tests read.
type Dashboard struct {
	Title         string `json:"title"`
	UID           string `json:"uid"`
	SchemaVersion int    `json:"schemaVersion"`
	// Panels are all panels in the order of the page. Those in collapsed rows come after their row.
	Panels     []Panel `json:"panels"`
	Templating struct {
		List []Variable `json:"list"`
	} `json:"templating"`
}

// Variable is a variable of a dashboard.
type Variable struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Definition string `json:"definition"`
}

// Panel is a panel, or the heading of a row of panels.
type Panel struct {
	ID          int         `json:"id"`
	Type        string      `json:"type"`
	Title       string      `json:"title"`
	Description string      `json:"description"`
	Datasource  *Datasource `json:"datasource"`
	GridPos     struct {
		X, Y, W, H int
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []Target `json:"targets"`
	// Collapsed is set for a row that hides its panels until it is opened. They are in Panels then.
	Collapsed bool    `json:"collapsed"`
	Panels    []Panel `json:"panels"`
	// In is the ID of the collapsed row that the panel is in, or 0.
	In int `json:"-"`
}

// Datasource names the source of a panel's data.
type Datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// Target is a query of a panel.
type Target struct {
	RefID        string      `json:"refId"`
	Expr         string      `json:"expr"`
	LegendFormat string      `json:"legendFormat"`
	Datasource   *Datasource `json:"datasource"`
}

// LoadDashboard reads a dashboard.
func LoadDashboard(file string) (Dashboard, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return Dashboard{}, err
	}
	var d Dashboard
	if err := json.Unmarshal(content, &d); err != nil {
		return Dashboard{}, fmt.Errorf("%s: %w", file, err)
	}
	var all []Panel
	for _, p := range d.Panels {
		below := p.Panels
		p.Panels = nil
		all = append(all, p)
		for _, in := range below {
			in.In = p.ID
			all = append(all, in)
		}
	}
	d.Panels = all
	return d, nil
}

// Variables are values for a dashboard's variables, as Grafana fills them in.
type Variables struct {
	Namespace, Job string
	// RateInterval is four times the scrape interval, as in Grafana.
	RateInterval time.Duration
}

// Fill puts the values into an expression, and selects all rings and all members.
func (v Variables) Fill(expr string) string {
	return strings.NewReplacer(
		"$namespace", v.Namespace, "$job", v.Job, "$ring", ".+", "$instance", ".+",
		"$__rate_interval_ms", strconv.FormatInt(v.RateInterval.Milliseconds(), 10),
		"$__rate_interval", v.RateInterval.String(),
	).Replace(expr)
}

// Query is a query of a panel, with values for its variables.
type Query struct {
	Panel Panel
	// Index is the query's place in its panel.
	Index int
	Expr  string
}

// Name returns a readable name for the query.
func (q Query) Name() string {
	return fmt.Sprintf("%s (panel %d, query %s)", q.Panel.Title, q.Panel.ID, q.Panel.Targets[q.Index].RefID)
}

// Queries returns all queries.
func (d Dashboard) Queries(v Variables) []Query {
	var all []Query
	for _, p := range d.Panels {
		for i, t := range p.Targets {
			all = append(all, Query{Panel: p, Index: i, Expr: v.Fill(t.Expr)})
		}
	}
	return all
}
