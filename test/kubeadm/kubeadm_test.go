package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/template"
)

// TestBlocksOfTheHandbook checks that every block marked for this test is run, and that every block
// to be run exists.
func TestBlocksOfTheHandbook(t *testing.T) {
	book, err := readHandbook("../..")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, p := range book.pages {
		for _, b := range p.Blocks {
			if name := b.Kubeadm(); name != "" {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	if want := slices.Sorted(slices.Values(named)); !slices.Equal(found, want) {
		t.Errorf("the pages have %q, want %q", found, want)
	}
	if _, err := book.script("no-such"); err == nil {
		t.Error("a missing block was found")
	}
	for _, s := range [][2]string{{installPage, "self-hosted"}, {installPage, "take-it-away"}, {installPage, "helm"}, {migrationPage, "the-way-back"}} {
		if _, err := book.section(s[0], s[1]); err != nil {
			t.Error(err)
		}
	}
}

func TestParseCgroups(t *testing.T) {
	text := "9:name=systemd:/\n4:memory:/job/1\n1:cpu,cpuacct:/\n0::/user.slice\n7:gone:/\n"
	all := parseCgroups(text, func(folder string) bool { return !strings.Contains(folder, "gone") })
	var folders []string
	for _, h := range all {
		folders = append(folders, h.folder)
	}
	if want := []string{"/sys/fs/cgroup/systemd", "/sys/fs/cgroup/memory/job/1", "/sys/fs/cgroup/cpu,cpuacct"}; !slices.Equal(folders, want) {
		t.Errorf("%q, want %q", folders, want)
	}
	if !all[2].has("cpuacct") || all[1].has("cpu") {
		t.Errorf("controllers %+v", all)
	}
}

// TestLogSince checks that the judge starts where the stage began, and skips lines that a server
// did not finish.
func TestLogSince(t *testing.T) {
	name := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(name, []byte("{\"a\":1}\n{\"b\":2}\n{\"c\":{\"d\"{\"e\":3}\n{\"f\":4}\n{\"g\""), 0o644); err != nil {
		t.Fatal(err)
	}
	text, broken, err := logSince(name, int64(len("{\"a\":1}\n")))
	if want := "{\"b\":2}\n{\"f\":4}\n"; err != nil || string(text) != want || broken != 2 {
		t.Errorf("%q, %d broken, %v; want %q, 2 broken", text, broken, err, want)
	}
}

// TestShare checks that every stage is run by one cluster, in the order given, and that the
// clusters are done at about the same time.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		stages   string
		clusters int
		want     string
	}{
		{"shadow,static,self-hosted,helm,hosted", 1, "shadow,static,self-hosted,helm,hosted"},
		{"shadow,static,self-hosted,helm,hosted", 2, "self-hosted shadow,static,helm,hosted"},
		{"hosted,static,self-hosted", 2, "self-hosted hosted,static"},
		{"static", 2, "static"},
		{"", 2, ""},
	} {
		var names, shares []string
		if c.stages != "" {
			names = strings.Split(c.stages, ",")
		}
		for _, s := range share(names, c.clusters) {
			shares = append(shares, strings.Join(s, ","))
		}
		if got := strings.Join(shares, " "); got != c.want {
			t.Errorf("%d clusters share %q as %q, want %q", c.clusters, c.stages, got, c.want)
		}
	}
}

// TestLines checks that the output of one cluster never ends up within a line of another's.
func TestLines(t *testing.T) {
	var out bytes.Buffer
	var screen sync.Mutex
	one, two := &lines{screen: &screen, to: &out, begin: "1 "}, &lines{screen: &screen, to: &out, begin: "2 "}
	for _, w := range []struct {
		l    *lines
		text string
	}{{one, "a"}, {two, "x\ny"}, {one, "b\n\nc"}, {two, "\n"}, {one, "\nd"}} {
		if n, err := w.l.Write([]byte(w.text)); n != len(w.text) || err != nil {
			t.Errorf("%q: %d, %v", w.text, n, err)
		}
	}
	for range 2 {
		one.end()
	}
	if want := "2 x\n1 ab\n1 \n2 y\n1 c\n1 d\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestRaise checks that a limit is never lowered.
func TestRaise(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limit")
	for _, c := range []struct{ is, want string }{{"128\n", "1024"}, {"1024\n", "1024\n"}, {"9999\n", "9999\n"}} {
		if err := os.WriteFile(file, []byte(c.is), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := raise(file, 1024); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); string(got) != c.want || err != nil {
			t.Errorf("%q became %q (%v), want %q", c.is, got, err, c.want)
		}
	}
	if err := os.WriteFile(file, []byte("many"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := raise(file, 1024); err == nil {
		t.Error("a limit that is no number was accepted")
	}
}

// TestFlags checks that faulty flags are answered with their values.
func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"-stages sttic": `-stages "sttic": must be one of shadow`, "-stages helm,helm": `-stages "helm": is given twice`,
		"-clusters 0": "-clusters 0: must be 1 or more", "static": `unexpected argument "static"`,
	} {
		if _, err := parseFlags(strings.Fields(args), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	// What isolate gives a cluster without stages.
	if o, err := parseFlags([]string{"-stages=", "-stay=true"}, io.Discard); err != nil || len(o.stages) > 0 || !o.stay || o.clusters != 2 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestLeftBehind(t *testing.T) {
	for place, want := range map[string]bool{"/tmp/" + prefix + "999999999-1": true, "/tmp/" + prefix + "1-2": false, "/tmp/" + prefix + "x": false} {
		if left := leftBehind(place); left != want {
			t.Errorf("%s: left %v, want %v", place, left, want)
		}
	}
}

// TestBalancer checks that connections to a removed backend are closed, and that the next
// connection gets another backend.
func TestBalancer(t *testing.T) {
	greeter := func(greeting string) net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, greeting)
			}
		}()
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	one, two := greeter("1"), greeter("2")
	b, err := newBalancer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer b.close()
	call := func() (net.Conn, string) {
		conn, err := net.Dial("tcp", b.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		greeting := make([]byte, 1)
		_, _ = io.ReadFull(conn, greeting)
		return conn, string(greeting)
	}
	b.set(one.Addr().String())
	first, greeting := call()
	if greeting != "1" {
		t.Fatalf("greeted with %q", greeting)
	}
	b.set(two.Addr().String())
	if n, err := first.Read(make([]byte, 1)); err == nil {
		t.Errorf("the connection to a removed backend is still open: %d bytes", n)
	}
	if _, greeting := call(); greeting != "2" {
		t.Errorf("greeted with %q, want 2", greeting)
	}
	// A backend that does not answer is skipped.
	_ = one.Close()
	b.set(one.Addr().String(), two.Addr().String())
	for range 3 {
		if _, greeting := call(); greeting != "2" {
			t.Errorf("greeted with %q, want 2", greeting)
		}
	}
}

func TestIntended(t *testing.T) {
	for line, want := range map[string]bool{
		"image: x/flotilla:v1": true, "- " + addedFlag: true, "readinessProbe:": true, "- --cluster-cidr=10.244.0.0/16": false, "failureThreshold: 30": false,
	} {
		if intended.MatchString(line) != want {
			t.Errorf("%q: intended %v, want %v", line, !want, want)
		}
	}
}

// TestTemplates checks that every node's configuration suits kubeadm.
func TestTemplates(t *testing.T) {
	for _, tc := range []struct {
		first, central bool
		want           string
	}{{true, true, "kind: ClusterConfiguration"}, {false, true, "certificateKey: key"}, {false, false, "kind: JoinConfiguration"}} {
		var text bytes.Buffer
		err := template.Must(kubeadmConfig.Clone()).Option("missingkey=error").Execute(&text, map[string]any{
			"First": tc.first, "ControlPlane": tc.central, "Name": "n", "IP": "10.77.0.11", "Token": token, "Key": "key", "Kubernetes": "v1.37.1", "Endpoint": endpoint,
		})
		if err != nil || !strings.Contains(text.String(), tc.want) {
			t.Errorf("%v:\n%s", err, text.String())
		}
	}
}

// TestUnanswered checks which failures of kubeadm upgrade are worth a second try.
func TestUnanswered(t *testing.T) {
	const get = `couldn't retrieve DNS addon deployments: Get "https://10.77.0.1:6443/apis/apps/v1/deployments": `
	for _, tt := range []struct {
		name, says string
		want       bool
	}{
		{"client gives up", get + "net/http: request canceled (Client.Timeout exceeded while awaiting headers)", true},
		{"context ends", get + "context deadline exceeded", true},
		{"refused", get + "dial tcp 10.77.0.1:6443: connect: connection refused", false},
		{"a Pod that does not become ready", "couldn't upgrade control plane: timed out waiting: context deadline exceeded", false},
	} {
		if got := unanswered.MatchString(tt.says); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
