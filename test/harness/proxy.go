package harness

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flotilla-kube/flotilla/test/command"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// Mode is what a proxy does with connections.
type Mode int

const (
	// Pass forwards everything unchanged.
	Pass Mode = iota
	// Cut forwards nothing in either direction. It accepts new connections and leaves them silent,
	// like a switch that drops packets.
	Cut
	// Late holds everything back and delivers it once the mode ends. Requests of a replica that has
	// lost its claims in the meantime arrive after all.
	Late
	// CutReplies forwards the client's data and drops the server's.
	CutReplies
	// HalfOpen ends existing connections and lets new ones hang.
	HalfOpen
	// Stranded leaves existing connections silent, and passes new ones, as when one of several
	// API servers loses power.
	Stranded
	// Slow delays every piece of data, in both directions.
	Slow
	// Terminate ends TLS in the proxy, whose handler may then answer instead of the server.
	Terminate
)

const (
	// pieceSize is how much a slow proxy delays at a time. With slowDelay it limits latency and
	// bandwidth at once.
	pieceSize = 16 << 10
	slowDelay = 150 * time.Millisecond

	dialTimeout = 5 * time.Second
)

// Proxy sits between one manager and the API server, on an address of its own. TLS passes through
// it except in mode Terminate. It does nothing before Run. Its methods may be called from any
// goroutine.
type Proxy struct {
	listener net.Listener
	upstream string
	// kubeconfig is the control plane's.
	kubeconfig string
	// terminated passes connections to the HTTP layer.
	terminated *handedListener
	server     *http.Server
	connection sync.WaitGroup

	mu sync.Mutex
	// now is the current mode; changed is closed when it changes.
	now     Mode
	changed chan struct{}
	open    map[net.Conn]bool // whether they are stranded
	closed  bool

	hindered atomic.Int64
}

// Hindered returns how many pieces of data were held back or dropped plus how many connections were
// ended or left hanging.
func (p *Proxy) Hindered() int64 { return p.hindered.Load() }

// NewProxy returns a proxy in front of a control plane's API server, on a free port of 127.0.0.1.
// In mode Terminate it forwards requests without a token as the controller manager, and others with
// their own token. If between is not nil, it handles those requests first.
func NewProxy(plane *controlplane.ControlPlane, between func(forward http.Handler) http.Handler) (*Proxy, error) {
	return NewProxyAt("127.0.0.1:0", plane, between)
}

// NewProxyAt is NewProxy for an address.
func NewProxyAt(address string, plane *controlplane.ControlPlane, between func(forward http.Handler) http.Handler) (*Proxy, error) {
	certificate, err := plane.ServingCertificate("proxy")
	if err != nil {
		return nil, err
	}
	config, err := plane.ConfigFor(managerUser)
	if err != nil {
		return nil, err
	}
	handler, err := forward(config)
	if err != nil {
		return nil, err
	}
	if between != nil {
		handler = between(handler)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	p, err := newProxy(address, target.Host, certificate, handler)
	if err != nil {
		return nil, err
	}
	p.kubeconfig, err = plane.Kubeconfig(managerUser)
	return p, err
}

func newProxy(address, upstream string, certificate tls.Certificate, handler http.Handler) (*Proxy, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return &Proxy{
		listener: listener, upstream: upstream, changed: make(chan struct{}), open: map[net.Conn]bool{},
		terminated: newHandedListener(listener.Addr()),
		server: &http.Server{
			Handler:   handler,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
			ErrorLog:  silent(),
		},
	}, nil
}

// WriteKubeconfig writes the control plane's kubeconfig with the proxy's address, for a manager.
func (p *Proxy) WriteKubeconfig(path string) error { return Redirect(p.kubeconfig, path, p.URL()) }

// URL is the address that a manager uses for the API server.
func (p *Proxy) URL() string { return "https://" + p.listener.Addr().String() }

// Run serves until ctx ends, and returns once all connections have ended.
func (p *Proxy) Run(ctx context.Context) {
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

// Set changes the mode. It ends connections made under the old mode, unless the new mode acts on
// open ones, as a cut or slowness does.
func (p *Proxy) Set(next Mode) {
	p.mu.Lock()
	keep := next == Cut || next == Late || next == CutReplies || next == Stranded || next == Slow || next == Pass && (p.now == Slow || p.now == Late)
	p.now = next
	close(p.changed)
	p.changed = make(chan struct{})
	var ending []net.Conn
	for conn := range p.open {
		if !keep {
			ending = append(ending, conn)
		}
		p.open[conn] = next == Stranded
	}
	p.mu.Unlock()
	if next != Pass {
		p.hindered.Add(int64(len(ending)))
	}
	for _, conn := range ending {
		_ = conn.Close()
	}
}

func (p *Proxy) isStranded(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[conn]
}

func (p *Proxy) state() (Mode, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now, p.changed
}

// track registers the connection so that endAll and Set can close it. It returns false if the proxy
// has ended.
func (p *Proxy) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = conn.Close()
		return false
	}
	p.open[conn] = false
	return true
}

func (p *Proxy) drop(conn net.Conn) {
	p.mu.Lock()
	delete(p.open, conn)
	p.mu.Unlock()
	_ = conn.Close()
}

func (p *Proxy) endAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for conn := range p.open {
		_ = conn.Close()
	}
}

// serve forwards one connection until either side ends it.
func (p *Proxy) serve(ctx context.Context, client net.Conn) {
	if !p.track(client) {
		return
	}
	defer p.drop(client)
	now, changed := p.state()
	switch now {
	case Terminate:
		p.terminate(ctx, client)
		return
	case Cut, Late, HalfOpen:
		p.hindered.Add(1)
		select {
		case <-changed: // the client retries
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

// terminate hands the connection to the HTTP layer and returns once the layer has closed it.
func (p *Proxy) terminate(ctx context.Context, client net.Conn) {
	watched := &watchedConn{Conn: client, done: make(chan struct{})}
	if p.terminated.hand(watched) {
		select {
		case <-watched.done:
		case <-ctx.Done():
		}
	}
}

// forward copies from one side to the other, as the current mode says.
func (p *Proxy) forward(ctx context.Context, to, from net.Conn, replies bool) {
	buffer := make([]byte, pieceSize)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			now, _ := p.state()
			stranded := p.isStranded(from)
			if stranded || now == Cut || now == Late || now == CutReplies && replies || now == Slow {
				p.hindered.Add(1)
			}
			switch {
			case stranded:
				p.while(ctx, Stranded)
				return
			case now == Cut:
				// What was read is dropped. Set ends the connection when the cut is over.
				p.while(ctx, Cut)
				return
			case now == Late:
				if !p.while(ctx, Late) {
					return
				}
			case now == CutReplies && replies:
				continue
			case now == Slow:
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

// while returns true once the mode differs from m, and false if ctx ends first.
func (p *Proxy) while(ctx context.Context, m Mode) bool {
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
