package live

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/test/harness"
)

func allFaults() []fault {
	return []fault{
		{name: "a stranger holds a shard's Lease, and members may not write it", alerts: []string{"FlotillaShardWithoutOwner", "FlotillaHandoffStuck"}, happen: stolenShard},
		{name: "two fleets are scraped as one", alerts: []string{"FlotillaShardWithTwoOwners", "FlotillaMembersDisagree"}, happen: rivalFleet},
		{
			name: "a member is not scraped", alerts: []string{"FlotillaMembersNotScraped"},
			never: []string{"FlotillaShardWithoutOwner"}, happen: unscraped,
		},
		{name: "a member is down", alerts: []string{"FlotillaMemberDown"}, never: []string{"FlotillaShardWithoutOwner", "FlotillaMembersNotScraped"}, happen: downMember},
		{name: "a member's renewals are slow", alerts: []string{"FlotillaLeaseRenewalSlow"}, happen: slowRenewals},
		{name: "a member's acquisitions are slow", alerts: []string{"FlotillaUnownedTooLong"}, happen: slowAcquisitions},
		{name: "a member cannot list", alerts: []string{"FlotillaShardNotStarting"}, happen: hangingLists},
		{name: "shards are taken from their holders all the time", alerts: []string{"FlotillaWritesFenced"}, happen: thefts},
		{name: "a member is killed again and again", alerts: []string{"FlotillaMemberFlapping"}, happen: crashes},
		{name: "a member's selectors get lost on the way", alerts: []string{"FlotillaClientSideFiltering"}, happen: strippedSelectors},
		{
			name: "a conversion webhook is down", alerts: []string{"FlotillaResourceUnreadable"},
			never: []string{"FlotillaShardNotStarting", "FlotillaHandoffStuck"}, happen: brokenConversion,
		},
		{name: "a canary sends requests that are refused", alerts: []string{"FlotillaCanaryWorse"}, happen: badCanary},
		{name: "one member has the heavy namespaces", alerts: []string{"FlotillaLoadUneven"}, happen: heavyNamespaces},
		{name: "all members are stopped", alerts: []string{"FlotillaDown"}, happen: away},
		{name: "the fleet starts with junk for a plan", alerts: []string{"FlotillaWithoutPlan", "FlotillaPlanRefused"}, happen: junkPlan},
		{name: "a member of another minor version stays", alerts: []string{"FlotillaControllersLacking"}, never: []string{"FlotillaPlanRefused"}, happen: otherMinor},
		{
			name: "somebody else holds the leader lock", alerts: []string{"FlotillaLeaderLockNotHeld"},
			never: []string{"FlotillaShardWithoutOwner", "FlotillaHandoffStuck", "FlotillaDown", "FlotillaLeaderLockWithoutHolder"}, happen: heldLeaderLock,
		},
		{
			name: "the leader lock names a dead holder", alerts: []string{"FlotillaLeaderLockWithoutHolder"},
			never: []string{"FlotillaShardWithoutOwner", "FlotillaDown"}, happen: deadLeaderLock,
		},
	}
}

// every calls a function again and again until end is called.
func every(t *testing.T, period time.Duration, f func(ctx context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { wait.UntilWithContext(ctx, f, period) })
	return func() {
		cancel()
		group.Wait()
	}
}

// hold renews a Lease of kube-system for a holder, and creates it if needed. An empty holder
// releases it.
func (w *fixture) hold(ctx context.Context, lease, holder string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		leases := w.client.CoordinationV1().Leases(metav1.NamespaceSystem)
		l, err := leases.Get(ctx, lease, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: lease}}
			if l, err = leases.Create(ctx, l, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
		now := metav1.NewMicroTime(time.Now())
		if ptr.Deref(l.Spec.HolderIdentity, "") != holder {
			l.Spec.AcquireTime = &now
			if holder != "" {
				l.Spec.LeaseTransitions = ptr.To(ptr.Deref(l.Spec.LeaseTransitions, 0) + 1)
			}
		}
		l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &holder, &now, ptr.To[int32](15)
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
		return err
	})
}

const ghost = "ghost_00000000-0000-0000-0000-000000000000"

// stolenShard puts an unknown holder on a shard's Lease. Members would list that holder as ended
// and take the shard back, but a policy refuses their writes.
func stolenShard(t *testing.T, w *fixture) func(*testing.T) {
	const name = "flotilla-stolen-shard"
	lease := w.leases(t, "flotilla-namespaces-")[0]
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: []string{lease},
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{"coordination.k8s.io"}, APIVersions: []string{"v1"}, Resources: []string{"leases"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: `request.userInfo.username != "system:kube-controller-manager"`}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	admission := w.client.AdmissionregistrationV1()
	_, err := admission.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{})
	if err == nil {
		_, err = admission.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	stop := every(t, time.Second, func(ctx context.Context) { _ = w.hold(ctx, lease, ghost) })
	return func(t *testing.T) {
		stop()
		err := admission.ValidatingAdmissionPolicyBindings().Delete(t.Context(), name, metav1.DeleteOptions{})
		if err == nil {
			err = admission.ValidatingAdmissionPolicies().Delete(t.Context(), name, metav1.DeleteOptions{})
		}
		if err == nil {
			err = w.hold(t.Context(), lease, "")
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// rivalFleet starts a second fleet under the same job. Its Leases are in another namespace, so that
// neither fleet sees the other.
func rivalFleet(t *testing.T, w *fixture) func(*testing.T) {
	const name = "rival"
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "watch", "create", "update"},
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:kube-controller-manager"}},
	}
	_, err := w.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	if err == nil {
		_, err = w.client.RbacV1().Roles(name).Create(t.Context(), role, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = w.client.RbacV1().RoleBindings(name).Create(t.Context(), binding, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	w.start(t, name, "--leader-elect-resource-namespace="+name)
	w.prom.targets[name] = fmt.Sprintf("127.0.0.1:%d", w.port(t, name))
	w.prom.setTargets(t)
	return func(t *testing.T) {
		w.stop(t, name)
		delete(w.prom.targets, name)
		w.prom.setTargets(t)
	}
}

// unscraped hides a member from Prometheus.
func unscraped(t *testing.T, w *fixture) func(*testing.T) {
	target := w.prom.targets[names[1]]
	delete(w.prom.targets, names[1])
	w.prom.setTargets(t)
	return func(t *testing.T) {
		w.prom.targets[names[1]] = target
		w.prom.setTargets(t)
	}
}

// downMember stops a member that Prometheus goes on looking for.
func downMember(t *testing.T, w *fixture) func(*testing.T) {
	w.stop(t, names[2])
	return func(t *testing.T) {
		w.start(t, names[2])
		w.settle(t)
	}
}

func onLeases(r *http.Request) bool { return strings.Contains(r.URL.Path, "/leases") }

// slowRenewals makes each write of a Lease take nearly the request timeout, which is half the renew
// deadline.
func slowRenewals(_ *testing.T, w *fixture) func(*testing.T) {
	w.proxy.set(func(r *http.Request, ended <-chan struct{}) {
		if onLeases(r) && r.Method == http.MethodPut {
			keep(r, 4200*time.Millisecond, ended)
		}
	})
	return func(*testing.T) { w.proxy.set(nil) }
}

// slowAcquisitions leaves the first write of each shard's Lease in each term of a member unanswered,
// which for a new term is the acquisition, while another member leaves and comes back. A member
// repeats an unanswered request after half the renew deadline.
func slowAcquisitions(t *testing.T, w *fixture) func(*testing.T) {
	var attempts sync.Map
	w.proxy.set(func(r *http.Request, ended <-chan struct{}) {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/leases/flotilla-namespaces-") {
			return
		}
		lease, err := leaseOf(r)
		if r.Context().Err() != nil {
			return // the member has given up
		}
		if err != nil {
			t.Errorf("a write of a Lease cannot be read: %v", err)
			return
		}
		if !strings.HasPrefix(ptr.Deref(lease.Spec.HolderIdentity, ""), names[2]+"_") {
			return // it is released, or asked for
		}
		term := fmt.Sprintf("%s %d", lease.Name, ptr.Deref(lease.Spec.LeaseTransitions, 0))
		if _, again := attempts.LoadOrStore(term, true); !again {
			keep(r, time.Hour, ended)
		}
	})
	// On a busy machine the leaving member gives up waiting for the other, and most of its shards
	// are taken over instead of handed over. Then it leaves again.
	for range 5 {
		w.stop(t, names[0])
		harness.Eventually(t, harness.Patience, "the others have all shards", func(ctx context.Context) error {
			return w.prom.want(ctx, `count(sum by (ring, shard) (flotilla_shard_owned) == 0) or vector(0)`, 0)
		})
		w.start(t, names[0])
		slow, err := w.prom.query(t.Context(), `histogram_quantile(0.9, sum by (le) (flotilla_shard_unowned_seconds_bucket{how="handoff", ring="namespaces"})) > 5`)
		if err != nil {
			t.Fatal(err)
		}
		if len(slow) > 0 {
			break
		}
		t.Log("too few handoffs were slow: once more")
		w.settle(t)
	}
	return func(t *testing.T) {
		w.proxy.set(nil)
		w.settle(t)
	}
}

// leaseOf returns the Lease that a request writes. The request can be sent on.
func leaseOf(r *http.Request) (*coordinationv1.Lease, error) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(text))
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	lease, is := obj.(*coordinationv1.Lease)
	if !is {
		return nil, fmt.Errorf("it is a %T", obj)
	}
	return lease, nil
}

// hangingLists kills a member. Another one, which takes over some of its shards, gets no answer
// when it reads ConfigMaps.
func hangingLists(t *testing.T, w *fixture) func(*testing.T) {
	w.proxy.set(func(r *http.Request, ended <-chan struct{}) {
		if r.Method == http.MethodGet && r.URL.Path == "/api/v1/configmaps" {
			keep(r, time.Hour, ended)
		}
	})
	w.kill(t, names[0])
	return func(t *testing.T) {
		w.proxy.set(nil)
		w.start(t, names[0])
		w.settle(t)
	}
}

// brokenConversion has a kind that cannot be listed, and a member that starts meanwhile.
func brokenConversion(t *testing.T, w *fixture) func(*testing.T) {
	repair := harness.UnreadableKind(t, w.plane, schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "rafts"}, "Raft")
	w.kill(t, names[0])
	w.start(t, names[0])
	return func(*testing.T) { repair() }
}

func (w *fixture) kill(t *testing.T, name string) {
	t.Helper()
	m := w.members[name]
	delete(w.members, name)
	m.MustKill(t)
}

// thefts takes a shard from its holder in the middle of work, every few seconds: many Services have
// changed, and each write is slow. The workers of the EndpointSlice controller finish their queue
// when they are told to end, and write without a context, so the fence has much to refuse. The
// thief is no member, so members list it as ended, and the holder takes the shard back at once.
func thefts(t *testing.T, w *fixture) func(*testing.T) {
	const services = 20 // the controller has five workers
	var namespace, lease string
	// Names that differ only in their end would be near each other on the ring.
	for c := 'a'; c <= 'z' && namespace == ""; c++ {
		name := strings.Repeat(string(c), 9)
		if who, shard := w.owner(t, name); who == names[2] {
			namespace, lease = name, "flotilla-"+strings.ReplaceAll(shard, "/", "-")
		}
	}
	if namespace == "" {
		t.Fatalf("found no namespace of %s, which alone has slow writes", names[2])
	}
	if _, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	label := func(ctx context.Context, n int) error {
		for i := range services {
			service := corev1apply.Service(fmt.Sprintf("web-%d", i), namespace).WithLabels(map[string]string{"n": strconv.Itoa(n)}).
				WithSpec(corev1apply.ServiceSpec().WithSelector(map[string]string{"app": "none"}).WithPorts(corev1apply.ServicePort().WithPort(80)))
			if _, err := w.client.CoreV1().Services(namespace).Apply(ctx, service, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
				return err
			}
		}
		return nil
	}
	// begun is true once a slice has its Service's new label. Then most do not have it yet.
	begun := func(ctx context.Context, n int) bool {
		slices, err := w.client.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{LabelSelector: fmt.Sprintf("n=%d", n)})
		return err == nil && len(slices.Items) > 0
	}
	w.proxy.set(func(r *http.Request, ended <-chan struct{}) {
		if r.Method != http.MethodGet && !onLeases(r) {
			keep(r, 300*time.Millisecond, ended)
		}
	})
	n := 0
	stop := every(t, 3*time.Second, func(ctx context.Context) {
		n++
		if err := label(ctx, n); err != nil {
			return
		}
		_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, harness.Patience, true, func(ctx context.Context) (bool, error) { return begun(ctx, n), nil })
		_ = w.hold(ctx, lease, ghost)
	})
	return func(t *testing.T) {
		stop()
		w.proxy.set(nil)
		if err := w.client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		w.settle(t)
	}
}

// crashes kills a member five times.
func crashes(t *testing.T, w *fixture) func(*testing.T) {
	const instance = `instance="flotilla-0"`
	for range 5 {
		samples, err := w.prom.query(t.Context(), `process_start_time_seconds{`+instance+`}`)
		if err != nil || len(samples) != 1 {
			t.Fatal(samples, err)
		}
		w.kill(t, names[0])
		w.start(t, names[0])
		harness.Eventually(t, harness.Patience, "the new process is scraped", func(ctx context.Context) error {
			return w.prom.want(ctx, `count(process_start_time_seconds{`+instance+`} != `+samples[0].value()+`)`, 1)
		})
	}
	return func(t *testing.T) { w.settle(t) }
}
