package flags

import (
	"os"
	"testing"
)

func TestPings(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "3")
	if err := SetPings(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5", "HTTP2_PING_TIMEOUT_SECONDS": "3"} {
		if got := os.Getenv(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
