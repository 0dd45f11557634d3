package harness

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
)

// managerUser is the identity of controller managers.
const managerUser = "system:kube-controller-manager"

// forward returns a handler that sends requests to the API server of the configuration.
func forward(config *rest.Config) (http.Handler, error) {
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	var as identities
	if as.manager, err = rest.TransportFor(config); err != nil {
		return nil, err
	}
	if as.bearer, err = rest.TransportFor(rest.AnonymousClientConfig(config)); err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = target.Host },
		Transport:     as,
		FlushInterval: -1, // watches
		ErrorLog:      silent(),
	}, nil
}

// identities keeps callers apart. Without it, a request that carries a token would go out as the
// manager's own.
type identities struct{ manager, bearer http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (as identities) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") != "" {
		return as.bearer.RoundTrip(r)
	}
	return as.manager.RoundTrip(r)
}

// silent returns a logger that discards what libraries report about cut connections.
func silent() *log.Logger { return log.New(io.Discard, "", 0) }

// handedListener is a net.Listener of connections that another listener accepted.
type handedListener struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newHandedListener(addr net.Addr) *handedListener {
	return &handedListener{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

// hand passes the connection to Accept. It returns false if the listener is closed.
func (l *handedListener) hand(conn net.Conn) bool {
	select {
	case l.conns <- conn:
		return true
	case <-l.done:
		return false
	}
}

// Accept implements net.Listener.
func (l *handedListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *handedListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *handedListener) Addr() net.Addr { return l.addr }

// watchedConn closes done when it is closed.
type watchedConn struct {
	net.Conn
	done chan struct{}
	once sync.Once
}

// Close implements net.Conn.
func (c *watchedConn) Close() error {
	defer c.once.Do(func() { close(c.done) })
	if err := c.Conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
