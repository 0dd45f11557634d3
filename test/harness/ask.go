package harness

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/testutil"
)

// HTTPClient returns a client with the credentials of config. It trusts any server, because a
// manager's serving certificate is self-signed.
func HTTPClient(config *rest.Config) (*http.Client, error) {
	c := rest.CopyConfig(config)
	c.TLSClientConfig.Insecure = true
	c.TLSClientConfig.CAData, c.TLSClientConfig.CAFile = nil, ""
	return rest.HTTPClientFor(c)
}

// As returns the same manager, queried through another client than the administrator's.
func (m *Manager) As(client *http.Client) *Manager {
	asked := *m
	asked.client = client
	return &asked
}

// Get queries the secure port. It returns an error if nobody answers.
func (m *Manager) Get(ctx context.Context, path string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.URL+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := m.client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// Answers returns a condition that holds once a GET of path returns the status.
func (m *Manager) Answers(path string, want int) Condition {
	return func(ctx context.Context) error {
		if err := m.Running(); err != nil {
			return err
		}
		status, body, err := m.Get(ctx, path)
		if err == nil && status != want {
			err = fmt.Errorf("%s of %s answers %d, want %d: %s", path, m.Name(), status, want, body)
		}
		return err
	}
}

// Healthy is the condition that the manager serves.
func (m *Manager) Healthy(ctx context.Context) error {
	return m.Answers("/healthz", http.StatusOK)(ctx)
}

// Ready is the condition that the manager reports itself ready.
func (m *Manager) Ready(ctx context.Context) error { return m.Answers("/readyz", http.StatusOK)(ctx) }

// Complete is the condition that the member runs every shard assigned to it.
func (m *Manager) Complete(ctx context.Context) error {
	return m.Answers("/completez", http.StatusOK)(ctx)
}

// Says returns a condition that holds once the answer contains all texts, whatever its status.
func (m *Manager) Says(path string, texts ...string) Condition {
	return func(ctx context.Context) error {
		_, body, err := m.Get(ctx, path)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if !strings.Contains(body, text) {
				return fmt.Errorf("%s of %s does not say %q: %s", path, m.Name(), text, body)
			}
		}
		return nil
	}
}

// MetricsText returns the body of /metrics.
func (m *Manager) MetricsText(ctx context.Context) (string, error) {
	status, text, err := m.Get(ctx, "/metrics")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("/metrics of %s: status %d", m.Name(), status)
	}
	return text, err
}

// Metrics returns the samples of /metrics by metric name.
func (m *Manager) Metrics(ctx context.Context) (testutil.Metrics, error) {
	text, err := m.MetricsText(ctx)
	if err != nil {
		return nil, err
	}
	metrics := testutil.NewMetrics()
	return metrics, testutil.ParseMetrics(text, &metrics)
}

// Labelled returns the samples that have all labels, given as name, value, name, value.
func Labelled(samples testutil.Samples, labels ...string) testutil.Samples {
	var found testutil.Samples
	for _, s := range samples {
		match := true
		for i := 0; i < len(labels); i += 2 {
			match = match && string(s.Metric[testutil.LabelName(labels[i])]) == labels[i+1]
		}
		if match {
			found = append(found, s)
		}
	}
	return found
}
