package fleet

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// connections are those of a client for Leases. When a request has got no answer in time, it closes
// those that have brought nothing since it was sent, so that the next request opens another. The
// machine at the other end may have lost power, and client-go would go on sending to it for 45 s,
// until HTTP/2's ping fails. A slow server's connection is left alone: it brings other answers.
type connections struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu   sync.Mutex
	open map[*connection]struct{}
}

// connection is one of them.
type connection struct {
	net.Conn
	of *connections
	// heard is when it last brought something, or was opened.
	heard atomic.Pointer[time.Time]
}

func newConnections(dial func(ctx context.Context, network, address string) (net.Conn, error)) *connections {
	return &connections{dial: dial, open: map[*connection]struct{}{}}
}

// Dial opens a connection.
func (c *connections) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	opened := &connection{Conn: conn, of: c}
	opened.hears()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[opened] = struct{}{}
	return opened, nil
}

// closeSilent closes the connections that have brought nothing since a time.
func (c *connections) closeSilent(since time.Time) {
	c.mu.Lock()
	var silent []*connection
	for conn := range c.open {
		if conn.heard.Load().Before(since) {
			silent = append(silent, conn)
		}
	}
	c.mu.Unlock()
	for _, conn := range silent {
		_ = conn.Close()
	}
}

func (c *connection) hears() {
	now := time.Now()
	c.heard.Store(&now)
}

// Read implements net.Conn.
func (c *connection) Read(into []byte) (int, error) {
	n, err := c.Conn.Read(into)
	if n > 0 {
		c.hears()
	}
	return n, err
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// wrap returns a transport that has connections closed when a request fails by its deadline.
func (c *connections) wrap(next http.RoundTripper) http.RoundTripper { return &impatient{next, c} }

type impatient struct {
	next        http.RoundTripper
	connections *connections
}

var _ utilnet.RoundTripperWrapper = &impatient{}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t *impatient) WrappedRoundTripper() http.RoundTripper { return t.next }

// RoundTrip implements http.RoundTripper.
func (t *impatient) RoundTrip(request *http.Request) (*http.Response, error) {
	sent := time.Now()
	response, err := t.next.RoundTrip(request)
	if err != nil && errors.Is(request.Context().Err(), context.DeadlineExceeded) {
		t.connections.closeSilent(sent)
	}
	return response, err
}
