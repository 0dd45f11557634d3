package flags

import "os"

// pings are the seconds after which client-go asks on a silent connection whether the API server is
// there, and for which it waits for the answer. Together they are a lease duration: with client-go's
// own 30 and 15, a member whose API server has lost its power would keep its claims, and its
// controllers would do nothing for 45 s. That is longer than others would need to take over.
var pings = map[string]string{"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5", "HTTP2_PING_TIMEOUT_SECONDS": "10"}

// SetPings makes client-go notice within a lease duration that a connection is dead, unless the
// environment says otherwise. There is no other way to tell client-go. Call it before the process
// makes its first client.
func SetPings() error {
	for name, seconds := range pings {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, seconds); err != nil {
			return err
		}
	}
	return nil
}
