package controllers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/flotilla-kube/flotilla/pkg/election/membership"
)

// Publish receives each token that is minted for a controller, before its first use. If it returns
// an error, the token is not used.
type Publish func(ctx context.Context, c membership.Credential) error

// PublishCredentials publishes each token that is minted from now on. Call it before Build. Without
// service-account credentials nothing is minted.
func (p *Process) PublishCredentials(publish Publish) {
	p.published.hook.Store(&publish)
}

// published passes minted tokens through a hook.
type published struct {
	hook atomic.Pointer[Publish]
}

// wrap returns a client that hands out a token only after the hook has accepted it.
func (p *published) wrap(core v1core.CoreV1Interface) v1core.CoreV1Interface {
	return publishedCore{core, p}
}

type publishedCore struct {
	v1core.CoreV1Interface
	published *published
}

// ServiceAccounts implements v1core.ServiceAccountsGetter.
func (c publishedCore) ServiceAccounts(namespace string) v1core.ServiceAccountInterface {
	return publishedAccounts{c.CoreV1Interface.ServiceAccounts(namespace), c.published}
}

type publishedAccounts struct {
	v1core.ServiceAccountInterface
	published *published
}

// CreateToken implements v1core.ServiceAccountExpansion. The caller tries again when it fails.
func (a publishedAccounts) CreateToken(ctx context.Context, name string, request *authenticationv1.TokenRequest, opts metav1.CreateOptions) (*authenticationv1.TokenRequest, error) {
	answer, err := a.ServiceAccountInterface.CreateToken(ctx, name, request, opts)
	hook := a.published.hook.Load()
	if err != nil || hook == nil {
		return answer, err
	}
	credential, err := credentialOf(answer.Status.Token)
	if errors.Is(err, errNoID) {
		// An API server before Kubernetes 1.32 may leave it out, and then it does not enforce a
		// fence either.
		klog.FromContext(ctx).V(2).Info("Minted a token that has no id and cannot be fenced", "serviceAccount", name)
		return answer, nil
	}
	if err == nil {
		err = (*hook)(ctx, credential)
	}
	if err != nil {
		return nil, fmt.Errorf("publishing the token of service account %s, which is not used before: %w", name, err)
	}
	return answer, nil
}

var errNoID = errors.New("the token has no id")

// credentialOf reads the id and the lifetime of a token that has just been minted. It trusts the
// token: it came from the API server, which will compare the id with it.
func credentialOf(token string) (membership.Credential, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return membership.Credential{}, fmt.Errorf("token has %d parts, want 3", len(parts))
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return membership.Credential{}, fmt.Errorf("token's payload: %w", err)
	}
	var claims struct {
		ID       string `json:"jti"`
		IssuedAt int64  `json:"iat"`
		Expires  int64  `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		return membership.Credential{}, fmt.Errorf("token's payload: %w", err)
	}
	if claims.ID == "" {
		return membership.Credential{}, errNoID
	}
	// Both times are the API server's: its clock is not compared with this one.
	lifetime := time.Duration(claims.Expires-claims.IssuedAt) * time.Second
	if lifetime <= 0 {
		return membership.Credential{}, fmt.Errorf("token expires %v after it was issued", lifetime)
	}
	return membership.Credential{ID: "JTI=" + claims.ID, Lifetime: lifetime}, nil
}
