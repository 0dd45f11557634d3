package measure

import (
	"context"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	// utime is 250 ticks, stime 50; the name has spaces and parentheses.
	const stat = "4242 (kube (a) b) S 1 4242 4242 0 -1 4194560 100 0 7 0 250 50 9000 8000 20 0 12 0 555 1 2"
	used, err := parseStat(stat)
	if err != nil || used != 3*time.Second {
		t.Errorf("got %v, %v; want 3s", used, err)
	}
	if _, err := parseStat("1 (x) S 1 2"); err == nil {
		t.Error("a line that is too short was accepted")
	}
}

func TestKilobytes(t *testing.T) {
	const status = "Name:\tetcd\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nThreads:\t9\n"
	for name, want := range map[string]uint64{"VmRSS": 1024 * 1024, "VmHWM": 2048 * 1024} {
		if got, err := kilobytes(status, name); err != nil || got != want {
			t.Errorf("%s: got %d, %v; want %d", name, got, err, want)
		}
	}
	for _, name := range []string{"VmSwap", "Threads"} {
		if got, err := kilobytes(status, name); err == nil {
			t.Errorf("%s: got %d, want an error", name, got)
		}
	}
}

func TestParseTimes(t *testing.T) {
	// 100 ticks of user to softirq and steal, except idle 600 and iowait 200; user includes guest
	// time, the last two.
	before := Times{}
	after, err := parseTimes("cpu  100 20 30 600 200 10 20 20 50 0\ncpu0 1 2 3\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := IdleShare(before, after); got != 0.8 {
		t.Errorf("idle share %v of %+v, want 0.8", got, after)
	}
	if got := IdleShare(after, after); got != 1 {
		t.Errorf("idle share %v of no time, want 1", got)
	}
	if _, err := parseTimes("intr 5\n"); err == nil {
		t.Error("a text without the line of all cores was accepted")
	}
}

func TestParseHeap(t *testing.T) {
	const text = "heap profile: 3: 96 [10: 320] @ heap/1048576\n1: 32 [1: 32] @ 0x1 0x2\n\n# runtime.MemStats\n# Alloc = 1\n# HeapAlloc = 26528432\n# HeapSys = 99\n"
	if got, err := ParseHeap(text); err != nil || got != 26528432 {
		t.Errorf("got %d, %v; want 26528432", got, err)
	}
	if _, err := ParseHeap("heap profile: 3: 96 [10: 320] @ heap/1048576\n"); err == nil {
		t.Error("a text without HeapAlloc was accepted")
	}
}

const exposition = `# HELP q time
# TYPE q histogram
q_bucket{name="a",le="0.1"} 4
q_bucket{name="a",le="1"} 8
q_bucket{name="a",le="+Inf"} 10
q_bucket{name="with \"quotes\", and {braces}",le="0.1"} 1
q_bucket{name="b",le="1"} 1
q_bucket{name="b",le="+Inf"} 1e+01
qq_bucket{le="0.1"} 1000
go_goroutines 17
requests{method="PUT",code="200"} 3
requests{method="GET",code="200"} 5 1712000000000
`

func TestParseMetrics(t *testing.T) {
	m, err := ParseMetrics(strings.NewReader(exposition), "q_bucket", "go_goroutines", "requests")
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Sum("go_goroutines", nil); got != 17 {
		t.Errorf("goroutines %v, want 17", got)
	}
	if got := m.Sum("requests", func(l map[string]string) bool { return l["method"] == "GET" }); got != 5 {
		t.Errorf("GET %v, want 5", got)
	}
	if got := m.SumBy("requests", func(l map[string]string) string { return l["method"] }); got["PUT"] != 3 || len(got) != 2 {
		t.Errorf("by method %v, want PUT 3 and GET 5", got)
	}
	h := m.Histogram("q")
	if h[0.1] != 5 || h[1] != 9 || h.Count() != 20 {
		t.Errorf("histogram %v, want 5, 9 and 20", h)
	}
	for _, bad := range []string{`requests{method="PUT} 1`, `requests{method} 1`, `requests{} x`, `requests{}`} {
		if _, err := ParseMetrics(strings.NewReader(bad), "requests"); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestQuantile(t *testing.T) {
	inf := math.Inf(1)
	// The wanted values are those of PromQL's histogram_quantile.
	for _, tc := range []struct {
		name    string
		h       Histogram
		q, want float64
	}{
		{"middle of a bucket", Histogram{1: 10, 2: 30, inf: 30}, 0.5, 1.25},
		{"first bucket begins at 0", Histogram{1: 10, 2: 10, inf: 10}, 0.5, 0.5},
		{"end of a bucket", Histogram{1: 5, 2: 10, inf: 10}, 0.5, 1},
		{"beyond the last bound", Histogram{1: 1, 2: 2, inf: 100}, 0.99, 2},
		{"empty bucket between", Histogram{1: 5, 2: 5, 4: 10, inf: 10}, 0.75, 3},
	} {
		if got := tc.h.Quantile(tc.q); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
	if got := (Histogram{1: 0, inf: 0}).Quantile(0.5); !math.IsNaN(got) {
		t.Errorf("of nothing: got %v, want NaN", got)
	}
	d := Histogram{1: 10, 2: 30, inf: 30}.Since(Histogram{1: 10, 2: 10, inf: 10})
	if got := d.Quantile(0.5); got != 1.5 || d.Count() != 20 {
		t.Errorf("since: got %v of %d, want 1.5 of 20", got, d.Count())
	}
}

func TestQuantileOf(t *testing.T) {
	values := []float64{1, 2, 3, 4, 5}
	for q, want := range map[float64]float64{0: 1, 0.5: 3, 0.875: 4.5, 1: 5} {
		if got := QuantileOf(values, q); got != want {
			t.Errorf("%v: got %v, want %v", q, got, want)
		}
	}
	if got := QuantileOf(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("of nothing: got %v, want NaN", got)
	}
}

func TestAudit(t *testing.T) {
	event := func(ip, verb, stage, agent, resource, group string) string {
		return `{"stage":"` + stage + `","verb":"` + verb + `","userAgent":"` + agent + `","sourceIPs":["` + ip + `"],"objectRef":{"resource":"` + resource +
			`","apiGroup":"` + group + `"}}` + "\n"
	}
	log := event("127.0.1.1", "watch", "ResponseStarted", "kcm", "pods", "") +
		event("127.0.1.1", "watch", "ResponseStarted", "kcm", "deployments", "apps") +
		event("127.0.1.1", "watch", "ResponseStarted", "kcm/metadata-informers", "pods", "") +
		event("127.0.1.2", "watch", "ResponseStarted", "kcm", "pods", "") +
		event("127.0.1.1", "watch", "ResponseComplete", "kcm", "deployments", "apps") +
		event("127.0.1.2", "watch", "ResponseComplete", "kcm", "services", "") + // refused before it began
		event("127.0.1.2", "update", "ResponseComplete", "kcm", "leases", "coordination.k8s.io") +
		`{"stage":"Respon`
	clients, err := Audit(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	one, two := clients["127.0.1.1"], clients["127.0.1.2"]
	if one.Open() != 2 || one.Watches["pods"] != 1 || one.Watches["pods (metadata)"] != 1 || one.LeaseWrites != 0 {
		t.Errorf("first client: %+v, want a watch of pods and one of their metadata", one)
	}
	if two.Open() != 1 || two.LeaseWrites != 1 {
		t.Errorf("second client: %+v, want one watch and one write", two)
	}
}

// TestProxyCounts sends 3 bytes and receives 5, from the proxy's own address.
func TestProxyCounts(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	seen := make(chan string, 1)
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.ReadFull(conn, make([]byte, 3))
		_, _ = conn.Write([]byte("12345"))
		seen <- conn.RemoteAddr().(*net.TCPAddr).IP.String()
	}()
	proxy, err := NewProxy(server.Addr().String(), "127.0.1.7")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- proxy.Run(ctx) }()
	conn, err := net.Dial("tcp", proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("abc")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != "12345" {
		t.Errorf("read %q, %v; want 12345", got, err)
	}
	if source := <-seen; source != "127.0.1.7" {
		t.Errorf("the server saw %s, want 127.0.1.7", source)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if received, sent := proxy.Counts(); received != 5 || sent != 3 {
		t.Errorf("received %d and sent %d bytes, want 5 and 3", received, sent)
	}
	if _, err := NewProxy(server.Addr().String(), "192.0.2.1"); err == nil {
		t.Error("an address that is not this machine's was accepted")
	}
}
