package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// balancer is the load balancer in front of the API servers. It passes each connection to the next
// backend that answers, and closes connections to backends that are gone.
type balancer struct {
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	backends []string
	next     int
	open     map[net.Conn]string // Both ends of each connection, and its backend.
}

const dialTimeout = time.Second

func newBalancer(address string) (*balancer, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	b := &balancer{listener: listener, open: map[net.Conn]string{}}
	b.running.Go(b.accept)
	return b, nil
}

// set replaces the backends and closes the connections to all others.
func (b *balancer) set(backends ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.backends = backends
	left := map[string]bool{}
	for _, backend := range backends {
		left[backend] = true
	}
	for conn, backend := range b.open {
		if !left[backend] {
			_ = conn.Close() // This ends both copies.
		}
	}
}

func (b *balancer) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return // Closed.
		}
		b.running.Go(func() { b.serve(conn) })
	}
}

func (b *balancer) serve(front net.Conn) {
	defer front.Close()
	back, err := b.dial(front)
	if err != nil {
		return
	}
	defer b.forget(front, back)
	var copies sync.WaitGroup
	for _, pair := range [][2]net.Conn{{front, back}, {back, front}} {
		copies.Go(func() {
			_, _ = io.Copy(pair[0], pair[1]) // It ends when either side closes.
			_, _ = pair[0].Close(), pair[1].Close()
		})
	}
	copies.Wait()
}

// dial tries each backend once.
func (b *balancer) dial(front net.Conn) (net.Conn, error) {
	b.mu.Lock()
	backends := append(append([]string(nil), b.backends[b.start():]...), b.backends[:b.start()]...)
	b.next++
	b.mu.Unlock()
	for _, backend := range backends {
		back, err := net.DialTimeout("tcp", backend, dialTimeout)
		if err != nil {
			continue
		}
		b.mu.Lock()
		b.open[front], b.open[back] = backend, backend
		b.mu.Unlock()
		return back, nil
	}
	return nil, errors.New("no backend answers")
}

func (b *balancer) start() int { return b.next % max(1, len(b.backends)) }

func (b *balancer) forget(conns ...net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close() // It may be closed already.
		delete(b.open, conn)
	}
}

// close ends all connections and waits for the goroutines that serve them.
func (b *balancer) close() {
	_ = b.listener.Close() // The listener is done either way.
	b.set()
	b.running.Wait()
}
