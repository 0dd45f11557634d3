package app

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
)

const (
	// fencePolicy is the name of the admission policy of deploy/fence, and of its binding.
	fencePolicy = "flotilla-fence"
	// policyPeriod is how often to look for it: it is installed once in the life of a cluster.
	policyPeriod = 5 * time.Minute
	// policyTimeout bounds one look. The first one delays the start.
	policyTimeout = 5 * time.Second
	// policyRetry is when to look again after a look that failed.
	policyRetry = 10 * time.Second
)

// policy is what the process knows about the admission policy by which the API server refuses
// fenced credentials.
type policy struct {
	client kubernetes.Interface
	// namespace is the namespace of the fleet's Leases.
	namespace string
	// absence is why nothing is enforced; nil if something is, or while that is unknown: waiting in
	// vain costs little.
	absence atomic.Pointer[string]
	known   atomic.Bool
}

// watchPolicy returns a function that reports whether the API server refuses the credentials of
// fenced members. It has asked once, and keeps asking until stop is called, which returns when it
// has ended.
func watchPolicy(ctx context.Context, c *config.CompletedConfig, namespace string) (enforced func() bool, stop func()) {
	p := &policy{client: c.Client, namespace: namespace}
	if !c.ComponentConfig.KubeCloudShared.UseServiceAccountCredentials {
		p.set(klog.FromContext(ctx), "without --use-service-account-credentials controllers have no credentials of their own")
		return p.enforced, func() {}
	}
	known := p.look(ctx)
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx, known) })
	return p.enforced, func() { cancel(); running.Wait() }
}

// enforced reports whether the API server refuses fenced credentials.
func (p *policy) enforced() bool { return p.absence.Load() == nil }

// run looks for the policy again and again until ctx ends. Call look before.
func (p *policy) run(ctx context.Context, known bool) {
	for ctx.Err() == nil {
		pause := wait.Jitter(policyPeriod, 0.2)
		if !known {
			pause = policyRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		known = p.look(ctx)
	}
}

// look looks for the policy once, logs what has changed, and returns whether it got an answer.
func (p *policy) look(ctx context.Context) bool {
	logger := klog.FromContext(ctx)
	ctx, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	// The controller manager's role may list everything, but get little.
	named := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, fencePolicy).String()}
	api := p.client.AdmissionregistrationV1()
	bindings, err := api.ValidatingAdmissionPolicyBindings().List(ctx, named)
	var policies *admissionv1.ValidatingAdmissionPolicyList
	if err == nil {
		policies, err = api.ValidatingAdmissionPolicies().List(ctx, named)
	}
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		// An API server before Kubernetes 1.30, or a role with fewer rights.
		p.set(logger, err.Error())
		return true
	}
	if err != nil {
		logger.Error(err, "Could not find out whether the API server enforces the fence", "policy", fencePolicy)
		return false
	}
	reason := absence(bindings.Items, p.namespace)
	if reason == "" && len(policies.Items) == 0 {
		reason = fmt.Sprintf("there is no ValidatingAdmissionPolicy %s", fencePolicy)
	}
	p.set(logger, reason)
	return true
}

// set records why nothing is enforced, empty if something is, and logs a change.
func (p *policy) set(logger klog.Logger, reason string) {
	var next *string
	if reason != "" {
		next = &reason
	}
	before, known := p.absence.Swap(next), p.known.Swap(true)
	switch {
	case next == nil && (before != nil || !known):
		logger.Info("The API server enforces the fence", "policy", fencePolicy)
	case next != nil && (before == nil || *before != reason):
		logger.Info("The API server does not enforce the fence: Leases alone keep dead members from writing", "reason", reason)
	}
}

// absence returns why the bindings do not make the API server refuse what is fenced on Leases of
// the namespace.
func absence(bindings []admissionv1.ValidatingAdmissionPolicyBinding, namespace string) string {
	if len(bindings) == 0 {
		return fmt.Sprintf("there is no ValidatingAdmissionPolicyBinding %s", fencePolicy)
	}
	spec := bindings[0].Spec
	switch {
	case spec.PolicyName != fencePolicy:
		return fmt.Sprintf("ValidatingAdmissionPolicyBinding %s is of policy %q", fencePolicy, spec.PolicyName)
	case !slices.Contains(spec.ValidationActions, admissionv1.Deny):
		return fmt.Sprintf("ValidatingAdmissionPolicyBinding %s does not deny", fencePolicy)
	case spec.ParamRef == nil || spec.ParamRef.Namespace != namespace:
		return fmt.Sprintf("ValidatingAdmissionPolicyBinding %s does not read the Leases of namespace %s", fencePolicy, namespace)
	}
	return ""
}
