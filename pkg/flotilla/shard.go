package flotilla

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/fleet"
	"github.com/flotilla-kube/flotilla/pkg/informer"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// Shard is what a controller of one shard works with. Its methods may be called concurrently.
type Shard struct {
	process    *process
	work       fleet.Work
	informers  *informer.Factory
	controller controller
}

// ID names the shard: the ring and the shard in it.
func (s *Shard) ID() shard.ID { return s.work.Shard.ID }

// String returns the shard's name, such as "namespaces/03".
func (s *Shard) String() string { return s.ID().String() }

// Controller is the name that the controller was added by.
func (s *Shard) Controller() string { return s.controller.name }

// Owns reports whether the objects of a namespace are this shard's. All are a singleton's, those of
// no namespace included; these are no range's.
func (s *Shard) Owns(namespace string) bool {
	if !s.work.Shard.Namespaced() {
		return true
	}
	return namespace != "" && s.work.Shard.Range.ContainsNamespace(namespace)
}

// Term counts the owners of the shard. It is 0 before the shard is owned, and once no write passes
// any more. A store that remembers the highest term it has seen can refuse an owner that is behind.
func (s *Shard) Term() int32 { return s.work.Term() }

// Closed is closed when no write passes any more, for good.
func (s *Shard) Closed() <-chan struct{} { return s.work.Closed }

// Config returns a configuration whose clients are fenced: what could change anything is refused
// with an error that is [fence.ErrRefused] unless the shard is owned, and cut off when it no
// longer is. Reads pass. Their requests share the limit of the controller in this process. The
// configuration is the caller's to change, but for WrapTransport, to which it may add.
func (s *Shard) Config() *rest.Config {
	c := rest.CopyConfig(s.process.config)
	// The fence goes innermost, next to the wire: what lies above it may take its time, and the claim
	// may end meanwhile.
	c.WrapTransport = transport.Wrappers(s.Wrap, c.WrapTransport, s.watched)
	c.RateLimiter = s.controller.limiter
	if c.RateLimiter == nil {
		c.QPS = -1
	}
	return c
}

// Reading returns a configuration of the process, not of the shard: its clients can read and
// nothing else, at no limit, also after the shard. It is for the ListerWatchers of informers, which
// are shared by the shards of a process: see [informer.Factory.Custom]. The configuration is the
// caller's to change, but for WrapTransport, to which it may add.
func (s *Shard) Reading() *rest.Config {
	c := rest.CopyConfig(s.process.config)
	c.QPS, c.RateLimiter = -1, nil
	reads := func(rt http.RoundTripper) http.RoundTripper { return readOnly{rt} }
	c.WrapTransport = transport.Wrappers(reads, c.WrapTransport, s.watchedReading)
	return c
}

// Wrap fences a transport to anything else that the controller writes to over HTTP: a cloud, for
// example. GET, HEAD and OPTIONS pass before the shard is owned; every other request only while it
// is.
func (s *Shard) Wrap(rt http.RoundTripper) http.RoundTripper { return s.work.Fence(rt) }

// Informers returns the shard's informers. They hold objects of its range, all that there are for a
// singleton, and of cluster-scoped kinds all objects; of Namespaces those of its range. Ask for
// each in Build and add the handlers there. The fleet starts and ends them: Start and Shutdown are
// not needed. Informers that are asked for in Run begin with Start.
func (s *Shard) Informers() *informer.Factory { return s.informers }

// readOnly refuses what could change anything.
type readOnly struct{ next http.RoundTripper }

// WrappedRoundTripper lets client-go find the transport that is behind.
func (t readOnly) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t readOnly) RoundTrip(req *http.Request) (*http.Response, error) {
	if fence.IsRead(req.Method) {
		return t.next.RoundTrip(req)
	}
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, errReadOnly
}

var errReadOnly = fmt.Errorf("%w: this configuration is for reading only", fence.ErrRefused)
