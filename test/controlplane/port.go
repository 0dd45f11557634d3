package controlplane

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports come from below the range that Linux and macOS use for outgoing connections. A stopped
// server must find its port free again, and clients that retry must not connect to themselves.
const (
	firstPort = 20000
	lastPort  = 29999
)

var ports = struct {
	sync.Mutex
	given map[int]bool
}{given: map[int]bool{}}

// FreePort returns a TCP port of 127.0.0.1 that is unused and that it has not returned before.
// Another process may still take it first.
func FreePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if ports.given[port] {
			continue
		}
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return 0, fmt.Errorf("controlplane: find a free port: %w", err)
		}
		ports.given[port] = true
		return port, nil
	}
	return 0, errors.New("controlplane: no free port found on 127.0.0.1")
}
