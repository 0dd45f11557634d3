package live

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
	"github.com/flotilla-kube/flotilla/test/monitoring"
)

const job = "flotilla"

// serviceMonitor is the part of deploy/monitoring/servicemonitor.yaml that the tests read.
type serviceMonitor struct {
	Spec struct {
		Endpoints []struct {
			Port, Scheme, Path, Interval string
			TLSConfig                    map[string]any `json:"tlsConfig"`
			Authorization                struct {
				Type        string
				Credentials struct{ Name, Key string }
			}
			Relabelings []map[string]any
		}
	}
}

// prometheus is a running Prometheus.
type prometheus struct {
	*controlplane.Process
	url     string
	dir     string
	began   time.Time
	targets map[string]string
}

// startPrometheus starts a Prometheus that scrapes the members, as the ServiceMonitor says, and the
// API server. It scrapes factor times as often and evaluates the shipped rules factor times as
// fast.
func (w *fixture) startPrometheus(t *testing.T) {
	t.Helper()
	p := &prometheus{dir: t.TempDir(), targets: map[string]string{}}
	token, monitor := w.install(t)
	p.write(t, "token", token)
	p.write(t, "prometheus.yaml", p.config(t, monitor))
	rules, err := monitoring.LoadRules(filepath.Join(w.root, "deploy/monitoring/alerts.yaml"))
	if err == nil {
		rules, err = rules.Faster(*factor)
	}
	if err == nil {
		err = rules.WriteFile(filepath.Join(p.dir, "rules.yaml"))
	}
	if err != nil {
		t.Fatal(err)
	}
	apiServer, err := url.Parse(w.plane.AdminConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "apiserver.json", fmt.Sprintf(`[{"targets":[%q],"labels":{"namespace":"default"}}]`, apiServer.Host))
	for _, name := range names {
		p.targets[name] = fmt.Sprintf("127.0.0.1:%d", w.port(t, name))
	}
	p.setTargets(t)
	port, err := controlplane.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p.Process, err = w.plane.StartProcess("prometheus", filepath.Join(w.root, "bin", "prometheus"), []string{
		"--config.file=" + filepath.Join(p.dir, "prometheus.yaml"), "--storage.tsdb.path=" + filepath.Join(p.dir, "data"),
		"--web.listen-address=" + address,
	})
	if err != nil {
		t.Fatal(err)
	}
	p.url, p.began, w.prom = "http://"+address, time.Now(), p
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(p.LogPath())
			t.Logf("end of the log of prometheus:\n%s", text[max(0, len(text)-3000):])
		}
	})
	for job, n := range map[string]float64{job: float64(len(names)), "apiserver": 1} {
		harness.Eventually(t, harness.Patience, "Prometheus scrapes "+job, func(ctx context.Context) error {
			return p.want(ctx, fmt.Sprintf(`sum(up{job=%q})`, job), n)
		})
	}
}

// config returns Prometheus' configuration, with the ServiceMonitor's settings.
func (p *prometheus) config(t *testing.T, monitor serviceMonitor) string {
	t.Helper()
	if len(monitor.Spec.Endpoints) != 1 {
		t.Fatalf("the ServiceMonitor has %d endpoints, want 1", len(monitor.Spec.Endpoints))
	}
	endpoint := monitor.Spec.Endpoints[0]
	if c := endpoint.Authorization.Credentials; c.Name != reader || c.Key != "token" {
		t.Errorf("the ServiceMonitor reads key %q of Secret %q, which deploy/monitoring does not make", c.Key, c.Name)
	}
	every, err := time.ParseDuration(endpoint.Interval)
	if err != nil {
		t.Fatal(err)
	}
	interval := fmt.Sprintf("%dms", (every / time.Duration(*factor)).Milliseconds())
	scrape := func(job, targets string) map[string]any {
		return map[string]any{
			"job_name": job, "scheme": endpoint.Scheme, "metrics_path": endpoint.Path,
			"authorization":   map[string]any{"type": endpoint.Authorization.Type, "credentials_file": filepath.Join(p.dir, "token")},
			"tls_config":      map[string]any{"insecure_skip_verify": endpoint.TLSConfig["insecureSkipVerify"]},
			"file_sd_configs": []any{map[string]any{"files": []string{filepath.Join(p.dir, targets)}}},
		}
	}
	config, err := yaml.Marshal(map[string]any{
		"global":         map[string]any{"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
		"rule_files":     []string{filepath.Join(p.dir, "rules.yaml")},
		"scrape_configs": []any{scrape(job, "members.json"), scrape("apiserver", "apiserver.json")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(config)
}

func (p *prometheus) write(t *testing.T, file, content string) {
	t.Helper()
	// Prometheus must never read a partial file.
	path := filepath.Join(p.dir, file)
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// setTargets gives Prometheus the members as targets. Their label instance is the member's name, as
// the ServiceMonitor derives it from the pod.
func (p *prometheus) setTargets(t *testing.T) {
	t.Helper()
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	groups := []group{}
	for _, name := range slices.Sorted(maps.Keys(p.targets)) {
		groups = append(groups, group{[]string{p.targets[name]}, map[string]string{"instance": name, "namespace": "kube-system"}})
	}
	content, err := json.Marshal(groups)
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "members.json", string(content))
}
