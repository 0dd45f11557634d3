package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
)

// ask queries Prometheus' API.
func (p *prometheus) ask(ctx context.Context, path string, parameters url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path+"?"+parameters.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s answers %s: %w", path, response.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}

// sample is one series of an answer.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

func (s sample) value() string { return fmt.Sprint(s.Value[1]) }

func (p *prometheus) query(ctx context.Context, expr string) ([]sample, error) {
	var data struct {
		ResultType string
		Result     json.RawMessage
	}
	if err := p.ask(ctx, "/api/v1/query", url.Values{"query": {expr}}, &data); err != nil {
		return nil, fmt.Errorf("%w: %s", err, expr)
	}
	if data.ResultType != "vector" {
		return nil, fmt.Errorf("%s is a %s, not a vector", expr, data.ResultType)
	}
	var samples []sample
	return samples, json.Unmarshal(data.Result, &samples)
}

// want returns an error unless an expression is one sample of that value.
func (p *prometheus) want(ctx context.Context, expr string, value float64) error {
	samples, err := p.query(ctx, expr)
	if err != nil {
		return err
	}
	if len(samples) != 1 || samples[0].value() != fmt.Sprint(value) {
		return fmt.Errorf("%s is %v, want %v", expr, samples, value)
	}
	return nil
}

// series returns the series that match.
func (p *prometheus) series(ctx context.Context, match string) ([]map[string]string, error) {
	var all []map[string]string
	return all, p.ask(ctx, "/api/v1/series", url.Values{"match[]": {match}}, &all)
}

// alert is a pending or firing alert.
type alert struct {
	Labels, Annotations map[string]string
	State, ActiveAt     string
}

func (a alert) String() string {
	labels := maps.Clone(a.Labels)
	for _, label := range []string{"alertname", "severity", "namespace", "job"} {
		delete(labels, label)
	}
	return fmt.Sprintf("%s%v", a.Labels["alertname"], labels)
}

func (p *prometheus) firing(ctx context.Context) ([]alert, error) {
	var data struct{ Alerts []alert }
	if err := p.ask(ctx, "/api/v1/alerts", nil, &data); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(data.Alerts, func(a alert) bool { return a.State != "firing" }), nil
}

// quiet is a condition: nothing fires.
func (p *prometheus) quiet(ctx context.Context) error {
	alerts, err := p.firing(ctx)
	if err == nil && len(alerts) > 0 {
		err = fmt.Errorf("firing: %v", alerts)
	}
	return err
}

// rulesWork returns an error unless all rules are evaluated without error.
func (p *prometheus) rulesWork(ctx context.Context) error {
	var data struct {
		Groups []struct {
			Name  string
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := p.ask(ctx, "/api/v1/rules", nil, &data); err != nil {
		return err
	}
	if len(data.Groups) == 0 {
		return errors.New("Prometheus has no rules")
	}
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				return fmt.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	return nil
}
