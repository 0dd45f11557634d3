package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	etcdName      = "etcd"
	apiServerName = "kube-apiserver"

	serviceCIDR = "10.96.0.0/16"

	// The endpoint address of the Service "kubernetes". It must not be a loopback address, and the
	// machine's own depends on its network. This one is reserved for documentation.
	advertiseAddress = "192.0.2.1"

	// Starting takes seconds, but up to a minute with a cold disk and a busy machine.
	startTimeout = 2 * time.Minute
	// So does stopping: a busy server is not killed while it finishes its work.
	stopTimeout  = time.Minute
	watchGrace   = "1s"
	pollInterval = 50 * time.Millisecond
)

func (cp *ControlPlane) startEtcd(ctx context.Context) error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	peerPort, err := FreePort()
	if err != nil {
		return err
	}
	etcd := &envtest.Etcd{
		URL:          &url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)},
		DataDir:      filepath.Join(cp.dir, "etcd"),
		StartTimeout: startTimeout,
		StopTimeout:  stopTimeout,
	}
	if err := cp.makeFrom(etcd.DataDir); err != nil {
		return err
	}
	if etcd.Path, err = cp.recordingScript(etcdName); err != nil {
		return err
	}
	log, err := cp.openLog(etcdName)
	if err != nil {
		return err
	}
	cp.logs = append(cp.logs, log)
	etcd.Out, etcd.Err = log, log
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", peerPort)
	etcd.Configure().
		Set("listen-peer-urls", peerURL).
		Set("initial-advertise-peer-urls", peerURL).
		Set("initial-cluster", "default="+peerURL).
		// The default of 2 GiB ends a load test with "database space exceeded".
		Set("quota-backend-bytes", strconv.Itoa(8<<30))
	cp.plane.Etcd = etcd
	return cp.start(ctx, etcdName, etcd.Start)
}

func (cp *ControlPlane) startAPIServer(ctx context.Context) error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	server := &envtest.APIServer{
		SecureServing: envtest.SecureServing{
			ListenAddr: envtest.ListenAddr{Address: "127.0.0.1", Port: strconv.Itoa(port)},
			CA:         cp.ca.certPEM(),
			Authn:      cp.ca,
		},
		CertDir:      filepath.Join(cp.dir, "apiserver"),
		EtcdURL:      cp.plane.Etcd.URL,
		StartTimeout: startTimeout,
		StopTimeout:  stopTimeout,
	}
	if err := os.Mkdir(server.CertDir, 0o700); err != nil {
		return err
	}
	if err := cp.ca.writeServingCertificate(server.CertDir); err != nil {
		return err
	}
	if server.Path, err = cp.recordingScript(apiServerName); err != nil {
		return err
	}
	log, err := cp.openLog(apiServerName)
	if err != nil {
		return err
	}
	cp.logs = append(cp.logs, log)
	server.Out, server.Err = log, log
	if err := cp.configureAPIServer(server.Configure()); err != nil {
		return err
	}
	cp.plane.APIServer = server
	return cp.start(ctx, apiServerName, server.Start)
}

// makeFrom creates a directory in the working directory: a copy of the one in Options.From, or an
// empty one.
func (cp *ControlPlane) makeFrom(dir string) error {
	if cp.opts.From == "" {
		return os.MkdirAll(dir, 0o700)
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(cp.opts.From, filepath.Base(dir)))); err != nil {
		return fmt.Errorf("copy of %s: %w", cp.opts.From, err)
	}
	return os.Chmod(dir, 0o700) // etcd requires it
}

// ServerPid returns the process ID of "kube-apiserver", "etcd" or, if there are nodes, "kwok" while
// it runs.
func (cp *ControlPlane) ServerPid(name string) (int, error) { return cp.pid(name) }

// configureAPIServer sets the flags that envtest leaves unset or sets differently.
func (cp *ControlPlane) configureAPIServer(args *envtest.Arguments) error {
	policy, err := cp.writeAuditPolicy()
	if err != nil {
		return err
	}
	args.Set("authorization-mode", "Node,RBAC").
		Disable("disable-admission-plugins"). // envtest disables ServiceAccount
		Set("advertise-address", advertiseAddress).
		Set("service-cluster-ip-range", serviceCIDR).
		Set("service-account-issuer", "https://kubernetes.default.svc.cluster.local").
		Set("service-account-key-file", cp.ca.serviceAccountPublicKey()).
		Set("service-account-signing-key-file", cp.ca.serviceAccountKeyFile()).
		// Without it, a stop waits for the one-minute request timeout while any watch is open.
		Set("shutdown-watch-termination-grace-period", watchGrace).
		Set("audit-policy-file", policy).
		Set("audit-log-path", cp.AuditLog()).
		Set("audit-log-format", "json").
		Set("audit-log-mode", "blocking").
		Set("audit-log-maxsize", auditMaxSize).
		Set("audit-log-maxage", "0").
		Set("audit-log-maxbackup", "0")
	if gates := cp.opts.featureGates(); gates != "" {
		args.Set("feature-gates", gates)
	}
	replaced := map[string]bool{}
	for _, arg := range cp.opts.APIServerArgs {
		name, value, hasValue := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		switch {
		case !hasValue:
			args.Enable(name)
		case replaced[name]:
			args.Append(name, value)
		default:
			args.Set(name, value)
			replaced[name] = true
		}
	}
	return nil
}

// start runs envtest's start function and kills the process if ctx ends first. It adds the end of
// the log to an error, because the log may be gone when somebody reads the error.
func (cp *ControlPlane) start(ctx context.Context, name string, start func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("controlplane: start %s: %w", name, err)
	}
	began := time.Now()
	stop := context.AfterFunc(ctx, func() { _ = cp.signal(name, syscall.SIGKILL) })
	defer stop()
	if err := start(); err != nil {
		return fmt.Errorf("controlplane: start %s: %w\n%s", name, errors.Join(err, ctx.Err()), tail(cp.logPath(name)))
	}
	cp.logf("%s: started in %.1f s", name, time.Since(began).Seconds())
	return nil
}

// waitReady returns once the API server is ready and has created its own objects.
func (cp *ControlPlane) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := kubernetes.NewForConfig(cp.admin)
	if err != nil {
		return err
	}
	began := time.Now()
	last := errors.New("not asked")
	ready := func(ctx context.Context) (bool, error) {
		// /readyz covers the RBAC bootstrap, but not the namespaces or the Service "kubernetes".
		if last = client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); last != nil {
			// envtest takes any server's answer on the port for a start.
			return false, cp.signal(apiServerName, 0)
		}
		for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
			_, last = client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			if last != nil {
				return false, nil
			}
		}
		_, last = client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
		return last == nil, nil
	}
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, ready); err != nil {
		return fmt.Errorf("controlplane: kube-apiserver did not become ready: %w, last: %v\n%s",
			err, last, tail(cp.logPath(apiServerName)))
	}
	cp.logf("%s: ready at %s after %.1f s", apiServerName, cp.admin.Host, time.Since(began).Seconds())
	return nil
}

// StopAPIServer stops kube-apiserver and leaves everything else running, for tests of an outage. Do
// not call it or StartAPIServer while the other, or Stop, runs.
func (cp *ControlPlane) StopAPIServer() error {
	if err := cp.stopServer(apiServerName, cp.plane.APIServer.Stop); err != nil {
		return err
	}
	cp.logf("%s: stopped", apiServerName)
	return nil
}

// StartAPIServer starts kube-apiserver again after StopAPIServer or a kill, with the same port,
// certificates, etcd and audit log. It returns when the server is ready.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error {
	if _, err := cp.pid(apiServerName); err == nil {
		// envtest learns only through Stop that a killed server is gone.
		if err := cp.StopAPIServer(); err != nil {
			return err
		}
	}
	if err := cp.start(ctx, apiServerName, cp.plane.APIServer.Start); err != nil {
		return err
	}
	return cp.waitReady(ctx)
}

// SignalAPIServer sends a signal to kube-apiserver: SIGKILL for a crash, SIGSTOP and SIGCONT for a
// stall.
func (cp *ControlPlane) SignalAPIServer(signal syscall.Signal) error {
	return cp.signal(apiServerName, signal)
}

// stopServer stops a process that envtest started. envtest kills a process that does not stop in
// time, and returns an error.
func (cp *ControlPlane) stopServer(name string, stop func() error) error {
	// A suspended process would exhaust its grace period.
	_ = cp.signal(name, syscall.SIGCONT)
	err := stop()
	// The process may exit, by itself or by an earlier SIGKILL, after envtest has checked it and
	// before envtest sends SIGTERM.
	if errors.Is(err, os.ErrProcessDone) || errors.Is(err, syscall.ESRCH) {
		err = nil
	}
	if removeErr := os.Remove(cp.pidFile(name)); !errors.Is(removeErr, os.ErrNotExist) {
		err = errors.Join(err, removeErr)
	}
	if err != nil {
		return fmt.Errorf("controlplane: stop %s: %w", name, err)
	}
	return nil
}

// SignalEtcd sends a signal to etcd: SIGSTOP and SIGCONT for a storage stall.
func (cp *ControlPlane) SignalEtcd(signal syscall.Signal) error {
	return cp.signal(etcdName, signal)
}
