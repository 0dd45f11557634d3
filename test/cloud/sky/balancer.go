package sky

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const dialTimeout = 5 * time.Second

// balancer is a listening load balancer.
type balancer struct {
	mu        sync.Mutex
	is        LoadBalancer
	listeners []net.Listener
	conns     map[net.Conn]struct{}
	closed    bool
	next      atomic.Uint64
	serving   sync.WaitGroup
}

// listen opens the ports on an address.
func listen(is LoadBalancer) (*balancer, error) {
	b := &balancer{is: is, conns: map[net.Conn]struct{}{}}
	for n, p := range is.Ports {
		l, err := net.Listen("tcp", net.JoinHostPort(is.Address, fmt.Sprint(p.Port)))
		if err != nil {
			b.close()
			return nil, err
		}
		b.listeners = append(b.listeners, l)
		b.serving.Go(func() { b.accept(l, n) })
	}
	return b, nil
}

func (b *balancer) accept(l net.Listener, port int) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if !b.keep(conn) {
			continue
		}
		b.serving.Go(func() {
			defer b.forget(conn)
			b.forward(conn, port)
		})
	}
}

// keep registers a connection for close. Afterwards it closes the connection and returns false.
func (b *balancer) keep(conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = conn.Close()
		return false
	}
	b.conns[conn] = struct{}{}
	return true
}

func (b *balancer) forget(conn net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.conns, conn)
	_ = conn.Close()
}

// forward connects a client with the first backend that answers, starting at the next in turn.
func (b *balancer) forward(client net.Conn, port int) {
	is := b.state()
	for range is.Backends {
		backend := is.Backends[b.next.Add(1)%uint64(len(is.Backends))]
		server, err := net.DialTimeout(
			"tcp", net.JoinHostPort(backend, fmt.Sprint(is.Ports[port].NodePort)), dialTimeout,
		)
		if err != nil {
			continue
		}
		if !b.keep(server) {
			return
		}
		defer b.forget(server)
		b.serving.Go(func() {
			_, _ = io.Copy(server, client)
			if half, is := server.(*net.TCPConn); is {
				_ = half.CloseWrite()
			}
		})
		_, _ = io.Copy(client, server)
		return
	}
}

func (b *balancer) state() LoadBalancer {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.is
}

func (b *balancer) change(backends []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.is.Backends = backends
}

// close returns when everything is closed and all goroutines have ended.
func (b *balancer) close() {
	b.mu.Lock()
	b.closed = true
	for _, l := range b.listeners {
		_ = l.Close()
	}
	for conn := range b.conns {
		_ = conn.Close()
	}
	b.mu.Unlock()
	b.serving.Wait()
}

var errNoAddress = errors.New("no address is free")
