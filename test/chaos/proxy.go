package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flotilla-kube/flotilla/test/command"
)

// mode says what a proxy does with connections.
type mode int

const (
	// pass forwards everything, untouched.
	pass mode = iota
	// cut forwards nothing, in neither direction. New connections are accepted and stay silent, as packets do that a
	// switch drops.
	cut
	// late holds back everything, and delivers it when it is over: requests of a replica that has lost its claims
	// meanwhile arrive after all.
	late
	// cutReplies forwards what the client says and drops what the server answers.
	cutReplies
	// halfOpen ends the connections there are, and lets new ones hang.
	halfOpen
	// slow holds back every piece of data for a while, in both directions.
	slow
	// storm ends TLS in the proxy, whose handler may then answer in the server's place.
	storm
)

const (
	// pieceSize is what a slow proxy holds back at a time: with slowDelay it is latency and bandwidth at once.
	pieceSize = 16 << 10
	slowDelay = 150 * time.Millisecond

	dialTimeout = 5 * time.Second
)

// proxy stands between one manager and the API server, on an address of its own. TLS passes through it, except in mode
// storm.
type proxy struct {
	listener net.Listener
	upstream string
	// terminated takes the connections that the HTTP layer answers.
	terminated *handedListener
	server     *http.Server
	connection sync.WaitGroup

	mu sync.Mutex
	// now is the mode, changed is closed when it changes.
	now     mode
	changed chan struct{}
	open    map[net.Conn]bool
	closed  bool

	hindered atomic.Int64
}

// Hindered returns how many pieces of data were held back or dropped, and how many connections
// ended or left to hang.
func (p *proxy) Hindered() int64 { return p.hindered.Load() }

// newProxy listens on a free port of 127.0.0.1. Its handler answers in mode storm, under the certificate.
func newProxy(upstream string, certificate tls.Certificate, handler http.Handler) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &proxy{
		listener: listener, upstream: upstream, changed: make(chan struct{}), open: map[net.Conn]bool{},
		terminated: newHandedListener(listener.Addr()),
		server: &http.Server{
			Handler:   handler,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
			ErrorLog:  silent(),
		},
	}
	return p, nil
}

// URL is the address that a manager is to use for the API server's.
func (p *proxy) URL() string { return "https://" + p.listener.Addr().String() }

// Run serves until ctx ends, and returns after all connections have ended.
func (p *proxy) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { _ = p.server.ServeTLS(p.terminated, "", "") })
	stop := context.AfterFunc(ctx, func() { _ = p.listener.Close() })
	defer stop()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			break
		}
		p.connection.Go(func() { p.serve(ctx, client) })
	}
	p.endAll()
	_ = p.server.Close()
	p.connection.Wait()
	group.Wait()
}

// Set changes the mode. Connections made under the old mode end, except where the new mode is about what becomes of
// them: a cut finds them open, and so does slowness.
func (p *proxy) Set(next mode) {
	p.mu.Lock()
	keep := next == cut || next == late || next == cutReplies || next == slow || next == pass && (p.now == slow || p.now == late)
	p.now = next
	close(p.changed)
	p.changed = make(chan struct{})
	var ending []net.Conn
	for conn := range p.open {
		if !keep {
			ending = append(ending, conn)
		}
	}
	p.mu.Unlock()
	if next != pass {
		p.hindered.Add(int64(len(ending)))
	}
	for _, conn := range ending {
		_ = conn.Close()
	}
}

func (p *proxy) state() (mode, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now, p.changed
}

// track makes the connection one that endAll and Set may close. It returns false if the proxy has ended.
func (p *proxy) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close()
		return false
	}
	p.open[conn] = true
	return true
}

func (p *proxy) drop(conn net.Conn) {
	p.mu.Lock()
	delete(p.open, conn)
	p.mu.Unlock()
	_ = conn.Close()
}

func (p *proxy) endAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for conn := range p.open {
		_ = conn.Close()
	}
}

// serve forwards one connection until either side ends it.
func (p *proxy) serve(ctx context.Context, client net.Conn) {
	if !p.track(client) {
		return
	}
	defer p.drop(client)
	now, changed := p.state()
	switch now {
	case storm:
		p.terminate(ctx, client)
		return
	case cut, late, halfOpen:
		p.hindered.Add(1)
		select {
		case <-changed: // the client tries anew
		case <-ctx.Done():
		}
		return
	}
	dialer := net.Dialer{Timeout: dialTimeout}
	server, err := dialer.DialContext(ctx, "tcp", p.upstream)
	if err != nil || !p.track(server) {
		return
	}
	defer p.drop(server)
	var group sync.WaitGroup
	group.Go(func() { defer server.Close(); p.forward(ctx, server, client, false) })
	group.Go(func() { defer client.Close(); p.forward(ctx, client, server, true) })
	group.Wait()
}

// terminate hands the connection to the HTTP layer and returns once that has closed it.
func (p *proxy) terminate(ctx context.Context, client net.Conn) {
	watched := &watchedConn{Conn: client, done: make(chan struct{})}
	if p.terminated.hand(watched) {
		select {
		case <-watched.done:
		case <-ctx.Done():
		}
	}
}

// forward copies from one side to the other as the mode of the moment wants it.
func (p *proxy) forward(ctx context.Context, to, from net.Conn, replies bool) {
	buffer := make([]byte, pieceSize)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			now, _ := p.state()
			if now == cut || now == late || now == cutReplies && replies || now == slow {
				p.hindered.Add(1)
			}
			switch {
			case now == cut:
				// What it has read stays here. Set ends the connection when the cut is over.
				p.while(ctx, cut)
				return
			case now == late:
				if !p.while(ctx, late) {
					return
				}
			case now == cutReplies && replies:
				continue
			case now == slow:
				if !command.Pause(ctx, slowDelay) {
					return
				}
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// while returns when the mode is another one, and false if ctx has ended before.
func (p *proxy) while(ctx context.Context, m mode) bool {
	for {
		now, changed := p.state()
		if now != m {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// handedListener is a net.Listener of connections that somebody else has accepted.
type handedListener struct {
	addr  net.Addr
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newHandedListener(addr net.Addr) *handedListener {
	return &handedListener{addr: addr, conns: make(chan net.Conn), done: make(chan struct{})}
}

// hand gives the connection to whoever accepts. It returns false if nobody will.
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

// watchedConn tells when it has been closed.
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
