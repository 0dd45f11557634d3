package slim

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pods is the resource whose objects Pod makes slim copies of.
var Pods = v1.SchemeGroupVersion.WithResource("pods")

// Pod returns a slim copy of obj, which must be a *v1.Pod; it returns anything else unchanged.
func Pod(obj any) any {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return obj
	}
	return &v1.Pod{ObjectMeta: metadata(&pod.ObjectMeta), Spec: spec(&pod.Spec), Status: status(&pod.Status, pod.DeletionTimestamp != nil)}
}

func metadata(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		OwnerReferences: m.OwnerReferences, Finalizers: m.Finalizers,
	}
}

func spec(s *v1.PodSpec) v1.PodSpec {
	return v1.PodSpec{
		NodeName: s.NodeName, ResourceClaims: s.ResourceClaims, SchedulingGroup: s.SchedulingGroup,
		Volumes: only(s.Volumes, attachable),
	}
}

func status(s *v1.PodStatus, deleting bool) v1.PodStatus {
	slim := v1.PodStatus{
		Phase: s.Phase, Reason: s.Reason, ObservedGeneration: s.ObservedGeneration,
		Conditions:            only(s.Conditions, read),
		ResourceClaimStatuses: s.ResourceClaimStatuses,
	}
	if deleting {
		slim.InitContainerStatuses = states(s.InitContainerStatuses)
		slim.ContainerStatuses = states(s.ContainerStatuses)
		slim.EphemeralContainerStatuses = states(s.EphemeralContainerStatuses)
	}
	return slim
}

// attachable reports whether a volume may be attached to a Node, or have a claim.
func attachable(v *v1.Volume) bool {
	s := &v.VolumeSource
	return s.EmptyDir == nil && s.ConfigMap == nil && s.Secret == nil && s.DownwardAPI == nil && s.Projected == nil &&
		s.HostPath == nil && s.GitRepo == nil && s.Image == nil
}

// read reports whether any controller reads a condition.
func read(c *v1.PodCondition) bool { return c.Type == v1.PodReady || c.Type == v1.DisruptionTarget }

// states returns containers' statuses with only the states.
func states(statuses []v1.ContainerStatus) []v1.ContainerStatus {
	if statuses == nil {
		return nil
	}
	slim := make([]v1.ContainerStatus, len(statuses))
	for i := range statuses {
		slim[i].State = statuses[i].State
	}
	return slim
}

// only returns a new slice, no larger than necessary, of what keep keeps; nil for nothing.
func only[T any](all []T, keep func(*T) bool) []T {
	n := 0
	for i := range all {
		if keep(&all[i]) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	kept := make([]T, 0, n)
	for i := range all {
		if keep(&all[i]) {
			kept = append(kept, all[i])
		}
	}
	return kept
}
