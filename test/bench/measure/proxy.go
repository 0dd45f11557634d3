package measure

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Proxy forwards TCP connections to one server and counts the bytes. It dials from its own address,
// so that the server can tell its clients apart. Its methods may be called from any goroutine.
type Proxy struct {
	listener       net.Listener
	upstream       string
	dialer         net.Dialer
	received, sent atomic.Int64
}

// NewProxy listens on a free port of 127.0.0.1, forwards to upstream ("host:port"), and dials from
// the IP address source, one of 127.0.0.0/8. Run serves.
func NewProxy(upstream, source string) (*Proxy, error) {
	ip := net.ParseIP(source)
	if ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("proxy: source %q: must be an address of 127.0.0.0/8", source)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return &Proxy{listener: listener, upstream: upstream, dialer: net.Dialer{LocalAddr: &net.TCPAddr{IP: ip}}}, nil
}

// Addr returns where it listens, as "host:port".
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Counts returns how many bytes came from the server and went to it.
func (p *Proxy) Counts() (received, sent int64) { return p.received.Load(), p.sent.Load() }

// Run serves until ctx ends, and returns when every connection is closed.
func (p *Proxy) Run(ctx context.Context) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	stop := context.AfterFunc(ctx, func() { _ = p.listener.Close() })
	defer stop()
	for {
		conn, err := p.listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("proxy: %w", err)
		}
		conns.Go(func() { p.serve(ctx, conn) })
	}
}

func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := p.dialer.DialContext(ctx, "tcp", p.upstream)
	if err != nil {
		return // the client retries
	}
	defer server.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = client.Close(), server.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { defer client.Close(); count(client, server, &p.received) })
	both.Go(func() { defer server.Close(); count(server, client, &p.sent) })
	both.Wait()
}

// count copies until either side ends. It does not use the kernel's copying, which has no count
// before the end.
func count(to io.Writer, from io.Reader, total *atomic.Int64) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			total.Add(int64(n))
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
