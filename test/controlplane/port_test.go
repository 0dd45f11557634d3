package controlplane

import (
	"fmt"
	"net"
	"testing"
)

func TestFreePort(t *testing.T) {
	seen := map[int]bool{}
	for range 100 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d was returned twice", port)
		}
		seen[port] = true
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatalf("a port that was returned is not free: %v", err)
		}
		if err := listener.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPortOfAnotherProcess requires that a port stays with the process that got it although nobody
// listens on it yet. Tests of several packages run at the same time: a kube-apiserver could not start
// again because a server of another package had got its port meanwhile.
func TestPortOfAnotherProcess(t *testing.T) {
	port, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	// The system knows nothing of FreePort's variables, so this is as good as another process.
	if takePort(port) {
		t.Errorf("port %d was taken a second time", port)
	}
	listening, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Close()
	used := listening.Addr().(*net.TCPAddr).Port
	if takePort(used) {
		t.Errorf("port %d was taken although a server listens on it", used)
	}
	mark, err := net.ListenPacket("udp", fmt.Sprintf("127.0.0.1:%d", used))
	if err != nil {
		t.Fatalf("a port that was not taken stays marked: %v", err)
	}
	_ = mark.Close()
}
