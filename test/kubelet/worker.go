package kubelet

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

const (
	firstPause, longestPause = 500 * time.Millisecond, 5 * time.Second
	// writeRetry is the delay before a failed status write is repeated.
	writeRetry = 500 * time.Millisecond
	// partingTime bounds the last requests for a pod.
	partingTime = 20 * time.Second
)

// worker runs one pod. Only run calls its methods, except stop.
type worker struct {
	k    *Kubelet
	pod  *corev1.Pod
	root string

	stopOnce sync.Once
	// stopping is closed when the pod must end, within grace. stop sets both.
	stopping chan struct{}
	grace    time.Duration

	status podStatus
}

func newWorker(k *Kubelet, pod *corev1.Pod) *worker {
	return &worker{
		k: k, pod: pod, stopping: make(chan struct{}),
		root:   filepath.Join(k.opts.Dir, string(pod.UID)),
		status: podStatus{started: metav1.Now()},
	}
}

// stop tells run to end the pod within the given seconds. Only the first call counts.
func (w *worker) stop(seconds int64) {
	w.stopOnce.Do(func() {
		w.grace = time.Duration(seconds) * time.Second
		close(w.stopping)
	})
}

// run runs the pod until it is deleted, has ended for good, or ctx ends.
func (w *worker) run(ctx context.Context) {
	defer os.RemoveAll(w.root)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { w.stop(w.ownGrace()) })
	defer stop()
	pause := firstPause
	for again := true; again; {
		began := time.Now()
		again = w.runOnce(ctx)
		if time.Since(began) > 10*longestPause {
			pause = firstPause
		}
		if !again || !w.pause(pause) {
			break
		}
		pause = min(2*pause, longestPause)
	}
	w.part(ctx)
}

// part writes how the pod ended, and deletes it if that was requested.
func (w *worker) part(ctx context.Context) {
	if ctx.Err() != nil {
		return // The node went away; the pod did not.
	}
	ctx, cancel := context.WithTimeout(ctx, partingTime)
	defer cancel()
	w.status.ended = true
	for !w.write(ctx) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(writeRetry):
		}
	}
	select {
	case <-w.stopping:
		now := int64(0)
		err := w.k.client.CoreV1().Pods(w.pod.Namespace).Delete(ctx, w.pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &w.pod.UID},
		})
		w.k.logf("%s: deleted: %v", w.pod.Name, err)
	default:
	}
}

func (w *worker) ownGrace() int64 {
	if s := w.pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return *s
	}
	return corev1.DefaultTerminationGracePeriodSeconds
}

// runOnce starts the container and returns when it has ended. It reports whether to start it again.
func (w *worker) runOnce(ctx context.Context) (again bool) {
	c, err := w.prepare(ctx)
	if err != nil {
		w.waiting(ctx, "CreateContainerConfigError", err)
		return true
	}
	process, err := w.k.opts.Plane.StartProcess(w.processName(), c.path, nil, controlplane.WithCommand(c.apply(c.argv)))
	if err != nil {
		w.waiting(ctx, "RunContainerError", err)
		return true
	}
	w.k.logf("%s: started %s at %s, log %s", w.pod.Name, c.path, w.status.address, process.LogPath())
	w.status.run()
	probing, stopProbing := context.WithCancel(ctx)
	var probes sync.WaitGroup
	events := make(chan verdict)
	probes.Go(func() { c.probe(probing, w.status.address, events) })
	killed := w.watch(ctx, process, events)
	stopProbing()
	probes.Wait()
	code := exitCode(process.Wait())
	w.status.end(code, killed)
	w.k.logf("%s: ended with %d %s", w.pod.Name, code, killed)
	w.write(ctx)
	switch w.pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	default:
		return true
	}
}

// watch returns when the process has ended, with the kubelet's reason for ending it, or "" if it
// ended on its own.
func (w *worker) watch(ctx context.Context, process *controlplane.Process, events <-chan verdict) (reason string) {
	w.write(ctx)
	stopping := w.stopping
	var kill <-chan time.Time
	for {
		var retry <-chan time.Time
		if w.status.dirty {
			retry = time.After(writeRetry)
		}
		select {
		case <-process.Done():
			return reason
		case v := <-events:
			w.status.judge(v)
			if v.fatal && reason == "" {
				reason = v.reason
				w.k.logf("%s: %s", w.pod.Name, v.reason)
				kill = time.After(time.Duration(w.ownGrace()) * time.Second)
				_ = process.Signal(syscall.SIGTERM)
			}
			w.write(ctx)
		case <-stopping:
			stopping, reason = nil, "stopped"
			w.status.ready = false
			kill = time.After(w.grace)
			_ = process.Signal(syscall.SIGTERM)
			w.write(ctx)
		case <-kill:
			_ = process.Signal(syscall.SIGKILL)
			reason = "killed after its grace period"
		case <-retry:
			w.write(ctx)
		}
	}
}

// waiting writes why the container does not run.
func (w *worker) waiting(ctx context.Context, reason string, err error) {
	if ctx.Err() == nil {
		w.k.logf("%s: %s: %v", w.pod.Name, reason, err)
		w.status.wait(reason, err.Error())
		w.write(ctx)
	}
}

// pause waits for a moment. It returns false if the pod must end.
func (w *worker) pause(d time.Duration) bool {
	select {
	case <-w.stopping:
		return false
	case <-time.After(d):
		return true
	}
}

func (w *worker) processName() string {
	return "pod-" + w.pod.Name + "-" + string(w.pod.UID)[:8]
}

func exitCode(err error) int32 {
	var status *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &status):
		return -1
	case status.ExitCode() < 0: // A signal ended it.
		return 128 + int32(status.Sys().(syscall.WaitStatus).Signal())
	default:
		return int32(status.ExitCode())
	}
}
