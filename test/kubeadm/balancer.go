package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// balancer stands before the API servers, as the load balancer of a real cluster does: it takes the
// next one that answers, and hangs up on those who talk to one that is gone.
type balancer struct {
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	backends []string
	next     int
	open     map[net.Conn]string // both ends of each connection, and its backend
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

// set says which backends there are, and hangs up on all others.
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
			_ = conn.Close() // the copies end with it
		}
	}
}

func (b *balancer) accept() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return // closed
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
			_, _ = io.Copy(pair[0], pair[1]) // ends with either side
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
		_ = conn.Close() // perhaps again
		delete(b.open, conn)
	}
}

// close ends all connections and waits for what serves them.
func (b *balancer) close() {
	_ = b.listener.Close() // nothing is left to say
	b.set()
	b.running.Wait()
}
