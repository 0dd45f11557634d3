package kubelet

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

// podStatus is the status of a pod's only container.
type podStatus struct {
	address        string
	started        metav1.Time
	restarts       int32
	state, last    corev1.ContainerState
	begun, ready   bool
	running, ended bool
	// dirty is set until the API server has the latest status.
	dirty bool
}

func (s *podStatus) wait(reason, message string) {
	s.running, s.begun, s.ready, s.dirty = false, false, false, true
	s.state = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func (s *podStatus) run() {
	if s.last.Terminated != nil {
		s.restarts++
	}
	s.running, s.begun, s.ready, s.dirty = true, false, false, true
	s.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
}

func (s *podStatus) end(code int32, reason string) {
	if reason == "" {
		reason = "Completed"
		if code != 0 {
			reason = "Error"
		}
	}
	s.running, s.begun, s.ready, s.dirty = false, false, false, true
	s.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: reason, FinishedAt: metav1.Now()}}
	s.last = s.state
}

func (s *podStatus) judge(v verdict) {
	s.begun, s.ready, s.dirty = v.begun, v.ready, true
}

// phase follows upstream: a container that is restarted keeps the pod running.
func (s *podStatus) phase() corev1.PodPhase {
	switch {
	case s.ended && s.last.Terminated != nil && s.last.Terminated.ExitCode == 0:
		return corev1.PodSucceeded
	case s.ended:
		return corev1.PodFailed
	case s.running || s.last.Terminated != nil:
		return corev1.PodRunning
	default:
		return corev1.PodPending
	}
}

// apply writes the container's status into a pod's status, and leaves the rest.
func (s *podStatus) apply(pod *corev1.Pod) {
	status := &pod.Status
	status.Phase, status.StartTime, status.ObservedGeneration = s.phase(), &s.started, pod.Generation
	status.HostIP, status.HostIPs = hostIP, []corev1.HostIP{{IP: hostIP}}
	if s.address != "" {
		status.PodIP, status.PodIPs = s.address, []corev1.PodIP{{IP: s.address}}
	}
	container := pod.Spec.Containers[0]
	status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: container.Name, Image: container.Image, ImageID: container.Image, RestartCount: s.restarts,
		State: s.state, LastTerminationState: s.last, Started: ptr.To(s.begun), Ready: s.ready,
	}}
	set(status, corev1.PodReadyToStartContainers, s.running)
	set(status, corev1.PodInitialized, true)
	set(status, corev1.ContainersReady, s.ready)
	set(status, corev1.PodReady, s.ready)
}

func set(status *corev1.PodStatus, kind corev1.PodConditionType, value bool) {
	want := corev1.ConditionFalse
	if value {
		want = corev1.ConditionTrue
	}
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == kind {
			if c.Status != want {
				c.Status, c.LastTransitionTime = want, metav1.Now()
			}
			return
		}
	}
	status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: want, LastTransitionTime: metav1.Now()})
}

// write writes the pod's status. It reports whether the API server has it now, or has no such pod.
func (w *worker) write(ctx context.Context) bool {
	pods := w.k.client.CoreV1().Pods(w.pod.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod, err := pods.Get(ctx, w.pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.UID != w.pod.UID {
			return nil
		}
		w.status.apply(pod)
		_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		w.status.dirty = true
		if ctx.Err() == nil {
			w.k.logf("%s: write its status: %v", w.pod.Name, err)
		}
		return false
	}
	w.status.dirty = false
	return true
}
