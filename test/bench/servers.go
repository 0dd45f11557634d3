package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/test/bench/measure"
	"github.com/flotilla-kube/flotilla/test/bench/result"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// Names of the API server's counters by kind of object.
const (
	watchBytes = "apiserver_watch_events_sizes_sum"
	sentBytes  = "apiserver_response_sizes_sum"
)

// servers are the API server and etcd, and the machine.
type servers struct {
	plane   *controlplane.ControlPlane
	client  kubernetes.Interface
	cpu     map[string]time.Duration
	machine measure.Times
	// sent is what the API server had sent before the system began, by kind.
	sent map[string]float64
}

func newClient(plane *controlplane.ControlPlane) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(plane.AdminConfig())
}

// quiet returns once the API server has come to rest, and the simulated nodes if there are any: they
// list all pods, take long to process them, and make the API server send them all again when they
// begin to watch.
func (s *servers) quiet(ctx context.Context, simulatesNodes bool) error {
	names := []string{apiServer}
	if simulatesNodes {
		names = append(names, nodes)
	}
	var pids []int
	for _, name := range names {
		pid, err := s.plane.ServerPid(name)
		if err != nil {
			return err
		}
		pids = append(pids, pid)
	}
	if err := measure.Quiet(ctx, serverLimit, pids...); err != nil {
		return fmt.Errorf("%s not at rest before the system starts: %w", strings.Join(names, " and "), err)
	}
	return nil
}

func (s *servers) begin() error {
	s.cpu = map[string]time.Duration{}
	for _, name := range []string{apiServer, etcd} {
		pid, err := s.plane.ServerPid(name)
		if err != nil {
			return err
		}
		if s.cpu[name], err = measure.CPU(pid); err != nil {
			return err
		}
	}
	var err error
	s.machine, err = measure.MachineTimes()
	return err
}

// end adds to the run what the servers have used since begin, and returns the machine's idle share.
func (s *servers) end(run *result.Run) (idle float64, err error) {
	now, err := measure.MachineTimes()
	if err != nil {
		return 0, err
	}
	for _, name := range []string{apiServer, etcd} {
		pid, err := s.plane.ServerPid(name)
		if err != nil {
			return 0, err
		}
		used, err := measure.CPU(pid)
		if err != nil {
			return 0, err
		}
		memory, err := measure.MemoryOf(pid)
		if err != nil {
			return 0, err
		}
		run.Servers = append(run.Servers, result.Process{
			Name: name, CPU: (used - s.cpu[name]).Seconds(), StartCPU: new(s.cpu[name].Seconds()), RSS: memory.RSS, PeakRSS: memory.Peak,
		})
	}
	return measure.IdleShare(s.machine, now), nil
}

// countKinds records what the API server has sent so far.
func (s *servers) countKinds(ctx context.Context) (err error) {
	s.sent, err = s.bytes(ctx)
	return err
}

// bytes returns what the API server has sent in lists and watch events since it began, by kind.
func (s *servers) bytes(ctx context.Context) (map[string]float64, error) {
	body, err := s.client.Discovery().RESTClient().Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	m, err := measure.ParseMetrics(body, watchBytes, sentBytes)
	if err != nil {
		return nil, err
	}
	kind := func(labels map[string]string) string {
		if group := labels["group"]; group != "" && labels["resource"] != "" {
			return labels["resource"] + "." + group
		}
		return labels["resource"]
	}
	sent := m.SumBy(watchBytes, kind)
	for name, n := range m.SumBy(sentBytes, func(labels map[string]string) string {
		if labels["verb"] != "LIST" {
			return ""
		}
		return kind(labels)
	}) {
		sent[name] += n
	}
	return sent, nil
}

// kinds returns what the API server has sent since countKinds, by kind. Metadata-only bytes are
// counted with those of whole objects, because the API server does not separate them.
func (s *servers) kinds(ctx context.Context) (map[string]int64, error) {
	sent, err := s.bytes(ctx)
	if err != nil {
		return nil, err
	}
	kinds := map[string]int64{}
	for name, n := range sent {
		if n -= s.sent[name]; n > 0 {
			kinds[name] = int64(n)
		}
	}
	return kinds, nil
}
