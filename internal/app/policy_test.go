package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// binding returns the binding of deploy/fence, changed.
func binding(change func(*admissionv1.ValidatingAdmissionPolicyBindingSpec)) *admissionv1.ValidatingAdmissionPolicyBinding {
	b := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: fencePolicy},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: fencePolicy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			ParamRef: &admissionv1.ParamRef{Namespace: metav1.NamespaceSystem, Selector: &metav1.LabelSelector{}},
		},
	}
	change(&b.Spec)
	return b
}

func TestPolicyIsFound(t *testing.T) {
	type spec = admissionv1.ValidatingAdmissionPolicyBindingSpec
	installed := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: fencePolicy}}
	for name, tc := range map[string]struct {
		objects []runtime.Object
		want    string
	}{
		"installed":         {[]runtime.Object{installed, binding(func(*spec) {})}, ""},
		"binding alone":     {[]runtime.Object{binding(func(*spec) {})}, "there is no ValidatingAdmissionPolicy flotilla-fence"},
		"policy alone":      {[]runtime.Object{installed}, "there is no ValidatingAdmissionPolicyBinding"},
		"another policy":    {[]runtime.Object{installed, binding(func(s *spec) { s.PolicyName = "x" })}, "of policy"},
		"only warns":        {[]runtime.Object{installed, binding(func(s *spec) { s.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn} })}, "not deny"},
		"another namespace": {[]runtime.Object{installed, binding(func(s *spec) { s.ParamRef.Namespace = "x" })}, "does not read the Leases of namespace kube-system"},
		"no parameters":     {[]runtime.Object{installed, binding(func(s *spec) { s.ParamRef = nil })}, "does not read the Leases"},
	} {
		p := &policy{client: fake.NewClientset(tc.objects...), namespace: metav1.NamespaceSystem}
		if !p.look(t.Context()) {
			t.Errorf("%s: no answer", name)
		}
		reason := ""
		if absent := p.absence.Load(); absent != nil {
			reason = *absent
		}
		if p.enforced() != (tc.want == "") || !strings.Contains(reason, tc.want) {
			t.Errorf("%s: enforced %t, reason %q; want %q", name, p.enforced(), reason, tc.want)
		}
	}
}

// Without an answer the policy counts as enforced, which is safer. A refusal counts as not
// enforced.
func TestPolicyThatCannotBeRead(t *testing.T) {
	resource := schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"}
	for name, tc := range map[string]struct {
		err             error
		known, enforced bool
	}{
		"unreachable": {errors.New("connection refused"), false, true},
		"forbidden":   {apierrors.NewForbidden(resource, "", errors.New("no")), true, false},
		"too old":     {apierrors.NewNotFound(resource, ""), true, false},
	} {
		client := fake.NewClientset()
		client.PrependReactor("list", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tc.err })
		p := &policy{client: client, namespace: metav1.NamespaceSystem}
		if known := p.look(t.Context()); known != tc.known || p.enforced() != tc.enforced {
			t.Errorf("%s: known %t, enforced %t; want %t, %t", name, known, p.enforced(), tc.known, tc.enforced)
		}
	}
}

// TestFenceDelayWithinAHandoff checks that the delay fits into a handoff, because a member that is
// told to end waits only that long.
func TestFenceDelayWithinAHandoff(t *testing.T) {
	for handoff, want := range map[time.Duration]bool{7 * time.Second: false, 8 * time.Second: true} {
		o, err := NewOptions()
		if err != nil {
			t.Fatal(err)
		}
		o.Fleet.Member, o.Fleet.FenceDelay, o.Fleet.HandoffTimeout = "a", 8*time.Second, handoff
		err = o.Validate()
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "--fence-delay 8s: must be at most --handoff-timeout, which is 7s") {
			t.Errorf("8s and --handoff-timeout %v: %v, want it allowed: %t", handoff, err, want)
		}
	}
}

func TestFenceDelayIsBounded(t *testing.T) {
	for delay, want := range map[time.Duration]bool{-1: false, 0: true, maxFenceDelay: true, maxFenceDelay + 1: false} {
		o, err := NewOptions()
		if err != nil {
			t.Fatal(err)
		}
		o.Fleet.Member, o.Fleet.FenceDelay, o.Fleet.HandoffTimeout = "a", delay, maxFenceDelay
		if err := o.Validate(); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "--fence-delay") {
			t.Errorf("--fence-delay %v: %v, want it allowed: %t", delay, err, want)
		}
	}
}
