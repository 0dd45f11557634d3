package main

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// prepare creates what upstream's specs take for granted in a cluster.
func prepare(ctx context.Context, plane *controlplane.ControlPlane) error {
	client, err := kubernetes.NewForConfig(plane.AdminConfig())
	if err != nil {
		return err
	}
	return errors.Join(runEndlessPods(ctx, client), makeDefaultClass(ctx, client))
}

// makeDefaultClass makes a default storage class, whose volumes the controller manager itself
// provisions. They are folders below /tmp/hostpath_pv, which are deleted with the volumes.
func makeDefaultClass(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: "standard", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: "kubernetes.io/host-path",
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("default storage class: %w", err)
	}
	return nil
}

// endless selects pods that would run until somebody ends them: in upstream's specs these pods
// pause or sleep. Here no container runs, and pods of a Job succeed within seconds unless an
// annotation says otherwise.
const endless = `object.spec.containers.exists(c, c.image.contains('/pause:') || has(c.command) && c.command.size() > 0 && c.command[0] == 'sleep')`

// runEndlessPods has the API server annotate endless pods, so that they keep running as they would
// on a kubelet.
func runEndlessPods(ctx context.Context, client kubernetes.Interface) error {
	const name = "conformance-endless-pods"
	admission := client.AdmissionregistrationV1()
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{string(corev1.ResourcePods)}},
				},
			}}},
			MatchConditions: []admissionv1.MatchCondition{
				{Name: "of-a-job", Expression: `has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.kind == 'Job')`},
				{Name: "endless", Expression: endless},
			},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: fmt.Sprintf(
					`Object{metadata: Object.metadata{annotations: {%q: "24h"}}}`, controlplane.RunForAnnotation)},
			}},
		},
	}
	if _, err := admission.MutatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("policy for endless pods: %w", err)
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
	if _, err := admission.MutatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("binding of the policy for endless pods: %w", err)
	}
	return nil
}
