package data

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// Prefix begins the names of the namespaces.
const Prefix = "ns"

// The content of a namespace.
const (
	PodsPerNamespace = replicaSets * podsEach

	replicaSets = 10
	podsEach    = 10
	configMaps  = 5
	secrets     = 2
	// configSize is the size of the data in a ConfigMap or Secret.
	configSize = 1024
)

func labelsOf(set int) map[string]string {
	return map[string]string{
		"app": fmt.Sprintf("app-%d", set), "app.kubernetes.io/name": fmt.Sprintf("app-%d", set), "app.kubernetes.io/part-of": "shop",
		"tier": "backend", "pod-template-hash": fmt.Sprintf("7c9f8d6b5%d", set),
	}
}

// template resembles pods of many clusters: two containers with variables, resources, probes and
// volumes.
func template(set int) corev1.PodTemplateSpec {
	container := func(name string, port int32) corev1.Container {
		c := corev1.Container{
			Name: name, Image: "registry.example.com/shop/" + name + ":v1.24.3", ImagePullPolicy: corev1.PullIfNotPresent,
			Ports: []corev1.ContainerPort{{Name: "http-" + name, ContainerPort: port}},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
			},
			ReadinessProbe: &corev1.Probe{PeriodSeconds: 5, ProbeHandler: corev1.ProbeHandler{
				HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(port)}}},
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/shop"}, {Name: "tmp", MountPath: "/tmp"}},
		}
		for i := range 8 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_NUMBER_%d", i), Value: strings.Repeat("value-", 5)})
		}
		return c
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labelsOf(set), Annotations: map[string]string{
			"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "checksum/config": strings.Repeat("0123456789abcdef", 4)}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container("server", 8080), container("proxy", 9090)},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "config-0"}}}},
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
		},
	}
}

func replicaSet(set int) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("app-%d", set), Labels: labelsOf(set)},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](podsEach), Template: template(set),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{
				"app": fmt.Sprintf("app-%d", set), "pod-template-hash": labelsOf(set)["pod-template-hash"]}},
		},
	}
}

// setStatus sets what the controller would write once all pods are ready.
func setStatus(set *appsv1.ReplicaSet) {
	set.Status = appsv1.ReplicaSetStatus{
		Replicas: podsEach, FullyLabeledReplicas: podsEach, ReadyReplicas: podsEach, AvailableReplicas: podsEach,
		TerminatingReplicas: ptr.To[int32](0), ObservedGeneration: set.Generation,
	}
}

// pod returns the i-th pod of its ReplicaSet.
func pod(owner *appsv1.ReplicaSet, i int, node string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: owner.Spec.Template.ObjectMeta, Spec: *owner.Spec.Template.Spec.DeepCopy()}
	p.Name = fmt.Sprintf("%s-%05x", owner.Name, 0x5b3c1+i)
	p.GenerateName = owner.Name + "-"
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	p.Spec.NodeName = node
	return p
}

// podStatus sets what a kubelet would write for the n-th pod of the cluster.
func podStatus(p *corev1.Pod, n int, now time.Time) {
	at := metav1.NewTime(now)
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &at, HostIP: "192.0.2.2", HostIPs: []corev1.HostIP{{IP: "192.0.2.2"}}, QOSClass: corev1.PodQOSBurstable,
	}
	p.Status.PodIP = fmt.Sprintf("10.%d.%d.%d", 128+n>>16&15, n>>8&255, n&255)
	p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady, corev1.PodScheduled} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: at})
	}
	for i, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: ptr.To(true), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}},
			ImageID:     "registry.example.com/shop/" + c.Name + "@sha256:" + strings.Repeat("0123456789abcdef", 4),
			ContainerID: fmt.Sprintf("containerd://%064x", n*2+i),
		})
	}
}

func configMap(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("config-%d", i)}, Data: map[string]string{"settings": strings.Repeat("x", configSize)}}
}

func secret(i int) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("secret-%d", i)}, Data: map[string][]byte{"key": []byte(strings.Repeat("x", configSize))}}
}

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "app-0"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "app-0"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}
}
