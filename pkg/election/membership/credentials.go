package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
)

// credentialSlack is how long an expired credential stays on the Lease, because clocks differ in
// speed.
const credentialSlack = 5 * time.Minute

// ErrMarked is what Publish returns when the incarnation itself has been fenced.
var ErrMarked = errors.New("this incarnation has been fenced by another member")

// Credential is what a member authenticates its writes with, reduced to what the API server's fence
// must know.
type Credential struct {
	// ID as in the user's extra "authentication.kubernetes.io/credential-id" in the API server.
	// Required, without commas.
	ID string
	// Lifetime is how much longer it can be used.
	Lifetime time.Duration
}

// credentials holds those of one incarnation, each with the time by which it has certainly expired,
// and the time from which its Lease has fenced others.
type credentials struct {
	mu          sync.Mutex
	expiry      map[string]time.Time
	fenced      string
	fencedSince time.Time
}

// Announce has the credential's id written on the member's Lease, and does not wait for the write.
func (m *Membership) Announce(c Credential) {
	m.credentials.add(c, m.cfg.Clock.Now())
	m.Touch()
}

// Publish has the credential's id written on the member's Lease and returns once it is there. On an
// error the credential must not be used, because nobody could fence it. The error is ErrMarked if
// the incarnation has been fenced: a new credential would bypass the fence.
func (m *Membership) Publish(ctx context.Context, c Credential) (err error) {
	if c.ID == "" || strings.Contains(c.ID, ",") {
		return fmt.Errorf("credential id %q must not be empty or have commas", c.ID)
	}
	name := leaserecord.MemberLease(m.cfg.Fleet, m.member)
	changed, stop := m.cfg.Observer.Subscribe(func(changed string) bool { return changed == name })
	defer stop()
	defer func() {
		if err != nil {
			m.credentials.remove(c.ID)
		}
	}()
	m.Announce(c)
	for {
		lease := m.cfg.Observer.Get(name)
		switch {
		case lease.Fenced(m.cfg.Incarnation):
			return ErrMarked
		case isClosed(m.lost):
			return ErrLost
		case lease.Holder == m.cfg.Incarnation && slices.Contains(leaserecord.Items(lease.Annotations[leaserecord.CredentialsAnnotation]), c.ID):
			return nil
		}
		select {
		case <-changed:
		case <-m.lost:
		case <-ctx.Done():
			return fmt.Errorf("writing the credential's id on Lease %s: %w", name, context.Cause(ctx))
		}
	}
}

// Revoke ends the membership at once, as if its Lease had been lost. It takes effect once Joined is
// closed.
func (m *Membership) Revoke() { m.revoke() }

// credentialAnnotations returns the annotations to write about credentials, this incarnation's and
// fenced ones.
func (m *Membership) credentialAnnotations() map[string]string {
	now := m.cfg.Clock.Now()
	lease := m.cfg.Observer.Get(leaserecord.MemberLease(m.cfg.Fleet, m.member))
	out := map[string]string{}
	struck, unmarked := lease.Unmarked()
	switch {
	case lease.Exists && lease.Holder != "" && lease.Holder != m.cfg.Incarnation:
		// The only write that can follow takes the Lease over from an incarnation that did not
		// release it. That write removes the credentials the incarnation published, so it must also
		// fence them. If the Lease has changed since it was observed, the write is refused and this
		// runs again.
		maps.Copy(out, leaserecord.MarksFor(lease.Record, lease.Holder))
	case lease.Exists && unmarked:
		maps.Copy(out, leaserecord.MarksFor(lease.Record, struck))
	case m.credentials.outlived(lease.Annotations[leaserecord.FencedCredentialsAnnotation], now):
		out[leaserecord.FencedAnnotation], out[leaserecord.FencedCredentialsAnnotation] = "", ""
	}
	out[leaserecord.CredentialsAnnotation] = m.credentials.list(now)
	return out
}

func (c *credentials) add(credential Credential, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.expiry == nil {
		c.expiry = map[string]time.Time{}
	}
	c.expiry[credential.ID] = now.Add(credential.Lifetime + credentialSlack)
}

func (c *credentials) remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.expiry, id)
}

// list returns the ids of the credentials that may still be used.
func (c *credentials) list(now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.expiry, func(_ string, expiry time.Time) bool { return !now.Before(expiry) })
	return strings.Join(slices.Sorted(maps.Keys(c.expiry)), ",")
}

// outlived reports whether this process has seen the list of fenced credentials unchanged for
// longer than any credential lives.
func (c *credentials) outlived(fenced string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fenced != c.fenced {
		c.fenced, c.fencedSince = fenced, now
	}
	return fenced != "" && now.Sub(c.fencedSince) >= leaserecord.FencedFor
}
