package controllers

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/controller-manager/pkg/clientbuilder"

	"github.com/flotilla-kube/flotilla/pkg/election/membership"
)

// jwt returns an unsigned token with this payload.
func jwt(payload string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(payload)) + ".c2lnbmF0dXJl"
}

func TestCredentialOf(t *testing.T) {
	for name, tc := range map[string]struct {
		token string
		want  membership.Credential
		err   string
	}{
		"as minted":     {token: jwt(`{"jti":"a-b","iat":1000,"exp":4600}`), want: membership.Credential{ID: "JTI=a-b", Lifetime: time.Hour}},
		"without an id": {token: jwt(`{"iat":1000,"exp":4600}`), err: errNoID.Error()},
		"expired":       {token: jwt(`{"jti":"a-b","iat":1000,"exp":1000}`), err: "expires 0s after"},
		"not a JWT":     {token: "a.b", err: "2 parts"},
		"not base64":    {token: "a.*.c", err: "payload"},
		"not JSON":      {token: jwt(`jti`), err: "payload"},
	} {
		got, err := credentialOf(tc.token)
		if got != tc.want || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: credentialOf() = %v, %v; want %v, %q", name, got, err, tc.want, tc.err)
		}
	}
}

func TestTokenIsNotHandedOutUnpublished(t *testing.T) {
	client := fake.NewClientset()
	token := jwt(`{"jti":"a-b","iat":1000,"exp":4600}`)
	client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: token}}, nil
	})
	var p published
	mint := func() (*authenticationv1.TokenRequest, error) {
		accounts := p.wrap(client.CoreV1()).ServiceAccounts(metav1.NamespaceSystem)
		return accounts.CreateToken(t.Context(), "job-controller", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	}
	if answer, err := mint(); err != nil || answer.Status.Token != token {
		t.Errorf("without a hook: %v, %v; want the token", answer, err)
	}
	var got []membership.Credential
	refuse := errors.New("the Lease cannot be written")
	for _, fault := range []error{nil, refuse} {
		hook := Publish(func(_ context.Context, c membership.Credential) error { got = append(got, c); return fault })
		p.hook.Store(&hook)
		answer, err := mint()
		if !errors.Is(err, fault) || (answer == nil) != (fault != nil) {
			t.Errorf("published with %v: %v, %v", fault, answer, err)
		}
	}
	if want := (membership.Credential{ID: "JTI=a-b", Lifetime: time.Hour}); !slices.Equal(got, []membership.Credential{want, want}) {
		t.Errorf("published %v, want %v twice", got, want)
	}
	token = jwt(`{"iat":1000,"exp":4600}`)
	if answer, err := mint(); err != nil || answer.Status.Token != token {
		t.Errorf("a token without an id: %v, %v; want it to be used as it is", answer, err)
	}
}

// tokenServer is an API server that mints tokens and records which token each request used.
type tokenServer struct {
	t  *testing.T
	mu sync.Mutex
	// minted counts the tokens. used lists the requests that were sent with them.
	minted int
	used   []string
}

func (s *tokenServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var answer runtime.Object = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "job-controller"}}
	switch {
	case strings.HasSuffix(r.URL.Path, "/token"):
		s.minted++
		expires := metav1.NewTime(time.Now().Add(time.Hour))
		seconds := int64(3600)
		answer = &authenticationv1.TokenRequest{
			Spec:   authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
			Status: authenticationv1.TokenRequestStatus{Token: jwt(fmt.Sprintf(`{"jti":"%d","iat":1000,"exp":4600}`, s.minted)), ExpirationTimestamp: expires},
		}
	case strings.Contains(r.URL.Path, "/pods"):
		credential, err := credentialOf(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if err != nil {
			s.t.Errorf("%s with %q: %v", r.URL.Path, r.Header.Get("Authorization"), err)
		}
		s.used = append(s.used, credential.ID)
		answer = &corev1.PodList{}
	}
	w.Header().Set("Content-Type", "application/json")
	text, err := runtime.Encode(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion, authenticationv1.SchemeGroupVersion), answer)
	if err != nil {
		s.t.Error(err)
	}
	_, _ = w.Write(text)
}

// TestControllersUsePublishedTokens tests everything that upstream puts around the minting.
func TestControllersUsePublishedTokens(t *testing.T) {
	server := &tokenServer{t: t}
	listener := httptest.NewServer(server)
	defer listener.Close()
	var p published
	var mu sync.Mutex
	var known []string
	hook := Publish(func(_ context.Context, c membership.Credential) error {
		mu.Lock()
		defer mu.Unlock()
		server.mu.Lock()
		defer server.mu.Unlock()
		if slices.Contains(server.used, c.ID) {
			t.Errorf("%s was used before it was published", c.ID)
		}
		if len(known) == 0 {
			known = append(known, "")
			return errors.New("the first one cannot be published")
		}
		known = append(known, c.ID)
		return nil
	})
	p.hook.Store(&hook)
	builder, err := newIdentities(&rest.Config{Host: listener.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, &p)
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientBuilder{base: builder, fence: nil, controller: "job-controller", limits: newLimits(nil)}.Client("job-controller")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"JTI=2", "JTI=2"}; !slices.Equal(server.used, want) || !slices.Equal(known, []string{"", "JTI=2"}) {
		t.Errorf("used %v, want %v; published %v", server.used, want, known)
	}
}

// slowIdentities counts how often it is asked for an identity. It fails the first time, and then
// answers once it has been asked for two.
type slowIdentities struct {
	clientbuilder.ControllerClientBuilder
	asked atomic.Int32
	two   chan struct{}
}

// Config implements clientbuilder.ControllerClientBuilder.
func (s *slowIdentities) Config(name string) (*rest.Config, error) {
	switch s.asked.Add(1) {
	case 1:
		return nil, errors.New("the API server is not there yet")
	case 3:
		close(s.two)
	}
	<-s.two
	return &rest.Config{Host: name}, nil
}

// Several shards that ask for the same identities at the same time cause one request for each. The
// first request fails.
func TestAnIdentityIsMadeOnce(t *testing.T) {
	slow := &slowIdentities{two: make(chan struct{})}
	made := &identities{ControllerClientBuilder: slow, byName: map[string]*identity{}}
	if _, err := made.Config("job-controller"); err == nil {
		t.Error("no error although there is no identity")
	}
	var all sync.WaitGroup
	for range 4 {
		for _, name := range []string{"job-controller", "cronjob-controller"} {
			all.Go(func() {
				if config, err := made.Config(name); err != nil || config.Host != name {
					t.Errorf("%s: %v, %v", name, config, err)
				}
			})
		}
	}
	all.Wait()
	if asked := slow.asked.Load(); asked != 3 {
		t.Errorf("two identities were asked for %d times, the first in vain, want 3 times", asked)
	}
}
