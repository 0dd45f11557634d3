package shadow

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"
)

// maxRights bounds the kinds of requests whose rights are checked.
const maxRights = 2000

// Right is a right that an identity would need.
type Right struct {
	// User is the identity; empty for the shadow's own.
	User string `json:"user,omitempty"`
	Kind
	// Namespace and Object are those of the first request of the kind; Namespace is empty for all.
	Namespace string `json:"namespace,omitempty"`
	Object    string `json:"object,omitempty"`
	// Why is the authorizer's reason.
	Why string `json:"why,omitempty"`
}

// rights asks what the identities of a member may do.
type rights struct {
	mu      sync.Mutex
	known   map[Kind]bool
	pending []request
	wake    chan struct{}
	// allowed is how many questions were answered with yes, missing those that were answered with
	// no.
	allowed int
	missing []Right
	// beyond is the number of kinds past the bound, failure why questions are not answered.
	beyond  int
	failure string
}

func newRights() *rights {
	return &rights{known: map[Kind]bool{}, wake: make(chan struct{}, 1)}
}

// see asks about the right to a request, once for each kind.
func (r *rights) see(req request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[req.Kind] || req.path {
		return
	}
	if len(r.known) >= maxRights {
		r.beyond++
		return
	}
	r.known[req.Kind] = true
	req.name = strings.TrimSuffix(req.name, "*")
	if req.Verb == "create" && req.Subresource == "" {
		req.name = "" // RBAC does not use it
	}
	r.pending = append(r.pending, req)
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *rights) next() (request, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		return request{}, false
	}
	return r.pending[0], true
}

// Asking says whose rights to ask about.
type Asking struct {
	Client authorizationclient.AuthorizationV1Interface
	// User is the user for the process's own requests; empty for the shadow itself.
	User string
	// Account returns the service account of a client, "system:serviceaccount:<namespace>:<name>";
	// empty for the process's own identity.
	Account func(client string) string
	// Namespace is where the fleet's Leases would be.
	Namespace string
	// Mints is set if a member would mint tokens for controllers.
	Mints bool
}

// member is the client of the requests that a member sends and a shadow does not.
const member = "fleet-member"

// needed are the requests of a member that a shadow does not send.
func (a Asking) needed() []request {
	var all []request
	need := func(verb, group, resource, subresource, namespace string) {
		kind := Kind{Client: member, Verb: verb, Group: group, Resource: resource, Subresource: subresource}
		all = append(all, request{Kind: kind, namespace: namespace})
	}
	for _, verb := range []string{"get", "list", "watch", "create", "update"} {
		need(verb, "coordination.k8s.io", "leases", "", a.Namespace)
	}
	if a.Mints {
		need("get", "", "serviceaccounts", "", metav1.NamespaceSystem)
		need("create", "", "serviceaccounts", "", metav1.NamespaceSystem)
		need("create", "", "serviceaccounts", "token", metav1.NamespaceSystem)
	}
	return all
}

// Pace of questions.
const (
	askTimeout = 10 * time.Second
	askAgain   = 10 * time.Second
)

// Ask asks about the rights to all kinds of requests, until ctx ends. If questions are not answered
// it tries again, and the report says so.
func (s *Shadow) Ask(ctx context.Context, a Asking) {
	for _, req := range a.needed() {
		s.rights.see(req)
	}
	for {
		req, more := s.rights.next()
		if !more {
			select {
			case <-s.rights.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		right, status, err := a.ask(ctx, req)
		if ctx.Err() != nil {
			return
		}
		if s.rights.answered(right, status, err) {
			klog.FromContext(ctx).Error(err, "Could not ask for rights, trying again", "after", askAgain)
		}
		if err == nil {
			continue
		}
		select {
		case <-time.After(askAgain):
		case <-ctx.Done():
			return
		}
	}
}

// answered records the first question's answer, and reports whether it is a new failure.
func (r *rights) answered(right Right, status authorizationv1.SubjectAccessReviewStatus, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		isNew := r.failure == ""
		r.failure = err.Error()
		r.pending = append(r.pending[1:], r.pending[0])
		return isNew
	}
	r.failure = ""
	r.pending = r.pending[1:]
	if status.Allowed {
		r.allowed++
		return false
	}
	right.Why = status.Reason
	if status.EvaluationError != "" {
		right.Why = strings.TrimPrefix(right.Why+"; "+status.EvaluationError, "; ")
	}
	r.missing = append(r.missing, right)
	return false
}

func (a Asking) ask(ctx context.Context, req request) (Right, authorizationv1.SubjectAccessReviewStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	right := Right{User: a.userOf(req), Kind: req.Kind, Namespace: req.namespace, Object: req.name}
	attributes := &authorizationv1.ResourceAttributes{
		Namespace: req.namespace, Verb: req.Verb, Group: req.Group, Resource: req.Resource, Subresource: req.Subresource, Name: req.name,
	}
	if right.User == "" {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
		answer, err := a.Client.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return right, authorizationv1.SubjectAccessReviewStatus{}, err
		}
		return right, answer.Status, nil
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: attributes, User: right.User, Groups: groupsOf(right.User),
	}}
	answer, err := a.Client.SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		err = fmt.Errorf("to ask for others the shadow needs the right to create subjectaccessreviews.authorization.k8s.io: %w", err)
	}
	if err != nil {
		return right, authorizationv1.SubjectAccessReviewStatus{}, err
	}
	return right, answer.Status, nil
}

func (a Asking) userOf(req request) string {
	if a.Account != nil {
		if account := a.Account(req.Client); account != "" {
			return account
		}
	}
	return a.User
}

const accountPrefix = "system:serviceaccount:"

// groupsOf returns the groups that the API server gives to every user of this name.
func groupsOf(user string) []string {
	groups := []string{"system:authenticated"}
	if rest, is := strings.CutPrefix(user, accountPrefix); is {
		namespace, _, _ := strings.Cut(rest, ":")
		groups = append(groups, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	return groups
}

// Rights is the result of asking about rights.
type Rights struct {
	// Allowed is how many questions were answered with yes, Missing those that were answered with
	// no.
	Allowed int     `json:"allowed"`
	Missing []Right `json:"missing"`
	// Unanswered is how many questions have no answer yet, or none at all, and Failure is why the
	// last one had none.
	Unanswered int    `json:"unanswered"`
	Failure    string `json:"failure,omitempty"`
}

func (r *rights) list() Rights {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := Rights{Allowed: r.allowed, Missing: slices.Clone(r.missing), Unanswered: len(r.pending) + r.beyond, Failure: r.failure}
	slices.SortFunc(all.Missing, func(a, b Right) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Name(), b.Name()), cmp.Compare(a.Verb, b.Verb), a.Kind.compare(b.Kind))
	})
	// Several clients of one identity lack the same rights.
	all.Missing = slices.CompactFunc(all.Missing, func(a, b Right) bool {
		return a.User == b.User && a.Name() == b.Name() && a.Verb == b.Verb
	})
	return all
}
