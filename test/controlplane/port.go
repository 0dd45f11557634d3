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

// ports holds a UDP socket for each port that FreePort has returned. Its number is taken for this
// process by that, also while no server listens yet or a server is about to start again: no other
// process can bind the same socket, and the system closes it when the process ends.
var ports = struct {
	sync.Mutex
	taken []net.PacketConn
}{}

// FreePort returns a TCP port of 127.0.0.1 that is unused and that neither this process nor another
// one that lives has got from it before.
func FreePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if takePort(port) {
			return port, nil
		}
	}
	return 0, errors.New("controlplane: no free port found on 127.0.0.1")
}

func takePort(port int) bool {
	address := fmt.Sprintf("127.0.0.1:%d", port)
	mark, err := net.ListenPacket("udp", address)
	if err != nil {
		return false
	}
	// A program that does not ask FreePort may listen on it.
	listener, err := net.Listen("tcp", address)
	if err != nil {
		_ = mark.Close()
		return false
	}
	_ = listener.Close()
	ports.Lock()
	defer ports.Unlock()
	ports.taken = append(ports.taken, mark)
	return true
}
