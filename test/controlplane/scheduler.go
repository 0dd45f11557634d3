package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const schedulerName = "kube-scheduler"

func (cp *ControlPlane) startScheduler(ctx context.Context) error {
	binary, err := cp.Binary(schedulerName)
	if err != nil {
		return err
	}
	kubeconfig, err := cp.Kubeconfig(schedulerUser)
	if err != nil {
		return err
	}
	port, err := FreePort()
	if err != nil {
		return err
	}
	began := time.Now()
	p, err := cp.StartProcess(schedulerName, binary, []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--leader-elect=false",
		// The scheduler must not be the bottleneck of an unrelated test.
		fmt.Sprintf("--kube-api-qps=%d", clientQPS),
		fmt.Sprintf("--kube-api-burst=%d", clientBurst),
	})
	if err != nil {
		return err
	}
	if err := waitHealthy(ctx, p, fmt.Sprintf("https://127.0.0.1:%d/readyz", port)); err != nil {
		return err
	}
	cp.logf("%s: ready after %.1f s", schedulerName, time.Since(began).Seconds())
	return nil
}

// waitHealthy returns nil when url answers 200, and an error if the process or ctx ends first. It
// does not check the serving certificate, which is self-signed.
func waitHealthy(ctx context.Context, p *Process, url string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}}
	healthy := func(ctx context.Context) (bool, error) {
		if p.ended() {
			return false, fmt.Errorf("it ended: %v", p.Wait())
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, err
		}
		response, err := client.Do(request)
		if err != nil {
			return false, nil
		}
		return response.StatusCode == http.StatusOK, response.Body.Close()
	}
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, healthy); err != nil {
		return fmt.Errorf("controlplane: %s did not become healthy: %w\n%s", p.Name(), err, tail(p.LogPath()))
	}
	return nil
}
