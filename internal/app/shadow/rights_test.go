package shadow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// authorizer answers reviews, and records the identity in each.
type authorizer struct {
	asked  []string
	denies func(user, what string) bool
	fails  func(what string) error
}

func (a *authorizer) client() *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		var attributes *authorizationv1.ResourceAttributes
		var status *authorizationv1.SubjectAccessReviewStatus
		user := "self"
		object := action.(clienttesting.CreateAction).GetObject()
		switch review := object.(type) {
		case *authorizationv1.SelfSubjectAccessReview:
			attributes, status = review.Spec.ResourceAttributes, &review.Status
		case *authorizationv1.SubjectAccessReview:
			attributes, status, user = review.Spec.ResourceAttributes, &review.Status, review.Spec.User+fmt.Sprint(review.Spec.Groups)
		default:
			return false, nil, nil
		}
		what := strings.TrimSpace(fmt.Sprintf("%s %s/%s %s/%s", attributes.Verb, attributes.Resource, attributes.Subresource, attributes.Namespace, attributes.Name))
		if err := a.fails(what); err != nil {
			return true, nil, err
		}
		a.asked = append(a.asked, user+": "+what)
		status.Allowed = !a.denies(user, what)
		return true, object, nil
	})
	return client
}

func newAuthorizer() *authorizer {
	return &authorizer{denies: func(string, string) bool { return false }, fails: func(string) error { return nil }}
}

// TestAsksOnce requires one review for each kind of request, for the identity that would make it.
func TestAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthorizer()
		a.denies = func(_, what string) bool { return strings.HasPrefix(what, "create pods/ ") }
		s := newTestShadow()
		pods := Kind{Client: "replicaset-controller", Verb: "create", Resource: "pods"}
		for _, r := range []request{
			of(pods, "a", "web-*"), of(pods, "b", "web-*"),
			of(Kind{Client: "shared-informers", Verb: "list", Resource: "pods"}, "", ""),
			of(Kind{Client: "job-controller", Verb: "update", Group: "batch", Resource: "jobs", Subresource: "status"}, "a", "j"),
			{Kind: Kind{Client: "x", Verb: "get", Resource: "/version"}, path: true},
		} {
			s.rights.see(r)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go s.Ask(ctx, Asking{
			Client: a.client().AuthorizationV1(), User: "system:kube-controller-manager", Namespace: "kube-system", Mints: true,
			Account: func(client string) string {
				if strings.HasSuffix(client, "-controller") {
					return "system:serviceaccount:kube-system:" + client
				}
				return ""
			},
		})
		synctest.Wait()
		s.rights.see(of(pods, "c", "web-*"))
		s.rights.see(of(Kind{Client: "shared-informers", Verb: "watch", Resource: "pods"}, "", ""))
		synctest.Wait()
		cancel()
		for _, want := range []string{
			"system:serviceaccount:kube-system:replicaset-controller[system:authenticated system:serviceaccounts system:serviceaccounts:kube-system]: create pods/ a/",
			"system:serviceaccount:kube-system:job-controller[system:authenticated system:serviceaccounts system:serviceaccounts:kube-system]: update jobs/status a/j",
			"system:kube-controller-manager[system:authenticated]: list pods/ /",
			"system:kube-controller-manager[system:authenticated]: watch pods/ /",
			"system:kube-controller-manager[system:authenticated]: update leases/ kube-system/",
			"system:kube-controller-manager[system:authenticated]: create serviceaccounts/token kube-system/",
		} {
			if n := len(slices.DeleteFunc(slices.Clone(a.asked), func(q string) bool { return q != want })); n != 1 {
				t.Errorf("%q was asked %d times", want, n)
			}
		}
		rights := s.rights.list()
		if len(a.asked) != 4+5+3 || rights.Allowed != len(a.asked)-1 || rights.Unanswered != 0 {
			t.Errorf("%d questions, %+v", len(a.asked), rights)
		}
		if len(rights.Missing) != 1 || rights.Missing[0].Name() != "pods" || !strings.HasSuffix(rights.Missing[0].User, ":replicaset-controller") {
			t.Errorf("missing: %+v", rights.Missing)
		}
	})
}

// TestAsksForItself: without impersonation the reviews are about the shadow itself, and a right
// that several of its clients lack is listed once.
func TestAsksForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAuthorizer()
		a.denies = func(user, what string) bool { return user == "self" && strings.Contains(what, "pods") }
		s := newTestShadow()
		for _, client := range []string{"one", "two"} {
			s.rights.see(of(Kind{Client: client, Verb: "create", Resource: "pods"}, "a", ""))
		}
		ctx, cancel := context.WithCancel(t.Context())
		go s.Ask(ctx, Asking{Client: a.client().AuthorizationV1(), Namespace: "kube-system"})
		synctest.Wait()
		cancel()
		if missing := s.rights.list().Missing; len(missing) != 1 || missing[0].User != "" {
			t.Errorf("missing: %+v", missing)
		}
	})
}

// TestAsksAgain checks that an unanswered review does not delay others, and that the report says
// why it has no answer.
func TestAsksAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, away := newAuthorizer(), true
		a.fails = func(what string) error {
			if away && strings.HasPrefix(what, "get leases") {
				return errors.New("the server is away")
			}
			return nil
		}
		s := newTestShadow()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.Ask(ctx, Asking{Client: a.client().AuthorizationV1(), Namespace: "kube-system"})
		synctest.Wait()
		if rights := s.rights.list(); rights.Unanswered != 5 || !strings.Contains(rights.Failure, "away") {
			t.Errorf("at first: %+v", rights)
		}
		after(t, 5*askAgain/2)
		if rights := s.rights.list(); rights.Allowed != 4 || rights.Unanswered != 1 || rights.Failure == "" {
			t.Errorf("while one fails: %+v", rights)
		}
		away = false
		after(t, askAgain)
		if rights := s.rights.list(); rights.Allowed != 5 || rights.Unanswered != 0 || rights.Failure != "" {
			t.Errorf("in the end: %+v", rights)
		}
	})
}
