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
	// fail receives the argument of Fail.
	fail func(error)
}

// ID names the shard: the ring and the shard in it.
func (s *Shard) ID() shard.ID { return s.work.Shard.ID }

// String returns the shard's name, such as "namespaces/03".
func (s *Shard) String() string { return s.ID().String() }

// Controller returns the name under which the controller was added.
func (s *Shard) Controller() string { return s.controller.name }

// Owns reports whether this shard owns the objects of a namespace. A singleton owns all objects,
// cluster-scoped ones included; a range owns no cluster-scoped ones.
func (s *Shard) Owns(namespace string) bool {
	if !s.work.Shard.Namespaced() {
		return true
	}
	return namespace != "" && s.work.Shard.Range.ContainsNamespace(namespace)
}

// Term counts the owners of the shard. It is 0 before the shard is owned, and after its last write
// may pass. A store that remembers the highest term it has seen can refuse an outdated owner.
func (s *Shard) Term() int32 { return s.work.Term() }

// Closed returns a channel that is closed when the fence is closed for good.
func (s *Shard) Closed() <-chan struct{} { return s.work.Closed }

// Config returns a configuration whose clients are fenced. While the shard is not owned, the fence
// refuses anything that could be a write, with an error that is [fence.ErrRefused]; when the shard
// stops being owned, it cuts off writes in progress. Reads pass. Requests share the limit of the
// controller in this process. The caller may change the configuration, but may only add to
// WrapTransport.
//
// A connection to a pod, a service or a node (exec, attach, portforward, proxy) is a write, even by
// GET. The fence cannot cut off those of client-go's remotecommand and portforward: close them
// before Run returns.
//
// A write in a namespace that the shard does not own fails with an error that is [ErrOutside]:
// another member may be working on the same object. A Namespace lies in itself, except that any
// shard may create one. Writes to other cluster-scoped objects, and events, pass.
func (s *Shard) Config() *rest.Config { return s.config(s.withinRange) }

// AnyNamespace returns a configuration like that of Config, whose clients may also write in the
// namespaces of other ranges. Then nothing keeps two members from writing one object at the same
// time: use it only for writes that come out right even so. If the API server filters, the next
// owner cannot see such a write in its informers of the range, and may list again at the handoff.
func (s *Shard) AnyNamespace() *rest.Config { return s.config(nil) }

func (s *Shard) config(limit transport.WrapperFunc) *rest.Config {
	c := rest.CopyConfig(s.process.config)
	// The fence goes innermost, next to the wire: layers above it may take time, and the claim may
	// end meanwhile.
	c.WrapTransport = transport.Wrappers(s.WrapAPI, limit, c.WrapTransport, s.watched)
	c.RateLimiter = s.controller.limiter
	if c.RateLimiter == nil {
		c.QPS = -1
	}
	return c
}

// Reading returns a configuration that belongs to the process, not to the shard: its clients can
// only read, without a limit, and outlive the shard. It is for the ListerWatchers of informers,
// which the shards of a process share: see [informer.Factory.Custom]. The caller may change the
// configuration, but may only add to WrapTransport.
func (s *Shard) Reading() *rest.Config {
	c := rest.CopyConfig(s.process.config)
	c.QPS, c.RateLimiter = -1, nil
	reads := func(rt http.RoundTripper) http.RoundTripper { return readOnly{s.process, rt} }
	c.WrapTransport = transport.Wrappers(reads, c.WrapTransport, s.watchedReading)
	return c
}

// Wrap fences a transport to anything else that the controller writes to over HTTP, such as a
// cloud, or the API server of another cluster. GET, HEAD and OPTIONS pass even before the shard is
// owned, and that includes connections to another cluster's pods; every other request passes only
// while it is owned.
func (s *Shard) Wrap(rt http.RoundTripper) http.RoundTripper { return s.work.FenceForeign(rt) }

// WrapAPI is Wrap for a transport to the cluster's own API server whose client cannot be made from
// Config: the next owner waits until its informers have seen what was written. The address must
// have the same path as the one that New was given, if any, or none. Nothing keeps such a client
// from writing in the namespaces of other ranges.
func (s *Shard) WrapAPI(rt http.RoundTripper) http.RoundTripper { return s.work.Fence(rt) }

// Fail ends all controllers of the shard because of err, as an error from Run does. It is for a
// Runnable that cannot return its error yet, because it waits for something that it has started. If
// a controller does not return then, its writes are refused after [Options.HandoffTimeout], and a
// LeaseDuration later the process ends, since nothing works on the shard any more. Before Run, what
// has been prepared for the shard is not used. Only the first call counts; once the shard is to be
// given up, none does. Fail(nil) does nothing.
func (s *Shard) Fail(err error) {
	if err == nil {
		return
	}
	s.fail(fmt.Errorf("controller %s on %s: %w", s.Controller(), s, err))
}

// Informers returns the shard's informers. Those of a range hold its objects, the Namespaces in it,
// and all objects of other cluster-scoped kinds; those of a singleton hold all objects. Ask for
// each informer in Build and add the handlers there. They are called once the shard is owned,
// perhaps before Run is. The fleet starts and ends them: you need neither Start nor Shutdown. Only
// informers first asked for in Run need Start, or their own Run. No informer takes a transform.
func (s *Shard) Informers() *informer.Factory { return s.informers }

// readOnly refuses everything that could be a write.
type readOnly struct {
	process *process
	next    http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t readOnly) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t readOnly) RoundTrip(req *http.Request) (*http.Response, error) {
	if fence.IsAPIRead(req.Method, t.process.pathOf(req)) {
		return t.next.RoundTrip(req)
	}
	return refuse(req, errReadOnly)
}

// refuse closes the request's body, as a RoundTripper must, and returns err.
func refuse(req *http.Request, err error) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return nil, err
}

var errReadOnly = fmt.Errorf("%w: this configuration is for reading only", fence.ErrRefused)
