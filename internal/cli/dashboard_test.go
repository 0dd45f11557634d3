package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/internal/status/page"
)

// TestDashboard: the command serves the page from the Leases, follows them, refuses foreign host
// names, and ends when interrupted.
func TestDashboard(t *testing.T) {
	_, l := usedFleet(t)
	c := newCluster(l)
	ctx, interrupt := context.WithCancel(t.Context())
	root := &cobra.Command{Use: "flotilla", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Commands(Config{
		Check: acceptAll, Clock: clock.RealClock{},
		Connect:   func(Target) (kubernetes.Interface, error) { return c.Clientset, nil },
		Interrupt: func(context.Context) (context.Context, context.CancelFunc) { return ctx, interrupt },
	})...)
	out, in := io.Pipe()
	root.SetOut(in)
	root.SetArgs([]string{"dashboard"})
	ended := make(chan error, 1)
	go func() {
		err := root.ExecuteContext(t.Context())
		_ = in.CloseWithError(io.EOF)
		ended <- err
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v, %v", err, <-ended)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	_, url, _ := strings.Cut(strings.TrimSpace(line), " is at ")
	if !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Fatalf("printed %q", line)
	}

	get := func(url, host string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if host != "" {
			request.Host = host
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	code, body := get(url, "")
	for _, want := range []string{"Fleet flotilla", "as its Leases say", "flotilla-1", "s-namespaces-03"} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%d, %q is missing:\n%s", code, want, body)
		}
	}
	if strings.Contains(body, "his member") {
		t.Errorf("the page names a member as its source:\n%s", body)
	}
	for host, want := range map[string]int{"localhost:1": http.StatusOK, "[::1]:1": http.StatusOK, "127.9.9.9": http.StatusOK, "evil.example.com": http.StatusForbidden, "10.0.0.1:80": http.StatusForbidden, "localhost.evil.example": http.StatusForbidden} {
		if code, body := get(url, host); code != want || want != http.StatusOK && strings.Contains(body, "flotilla-1") {
			t.Errorf("for host %s: %d, want %d", host, code, want)
		}
	}
	if code, _ := get(url+"other", ""); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}

	// A change must be on the next page.
	l.member("flotilla-9", testPlan(t))
	if _, err := c.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), l["flotilla-member-flotilla-9"].DeepCopy(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for seen := false; !seen; {
		var d page.Document
		_, text := get(url+"?format=json", "")
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
		for _, m := range d.Members {
			seen = seen || m.Name == "flotilla-9"
		}
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if c.writes() > 2 { // The watch's and the test's own.
		t.Errorf("%d requests that are neither get nor list", c.writes())
	}
}
