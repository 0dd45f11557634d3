package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/internal/status"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// largeFleet has 8 members and n shards in its namespaced ring, of which a few are unhealthy.
func largeFleet(t *testing.T, n int) leases {
	t.Helper()
	plan := testPlan(t)
	ranges, err := shard.EqualRanges(n)
	if err != nil {
		t.Fatal(err)
	}
	ring := &plan.Rings[0]
	ring.Shards = nil
	for i, r := range ranges {
		ring.Shards = append(ring.Shards, shard.Shard{ID: shard.ID{Ring: "namespaces", Name: fmt.Sprintf("%03d", i)}, Range: r, Home: fmt.Sprintf("flotilla-%d", i%8)})
	}
	l := newLeases(t, plan)
	for i := range 8 {
		l.member(fmt.Sprintf("flotilla-%d", i), plan)
	}
	for i, s := range plan.Shards() {
		l.shard(plan, s.ID, fmt.Sprintf("flotilla-%d", i%8), 1).Annotations[leaseapi.CensusAnnotation] = "none"
	}
	for i := range 9 {
		dead := l.at(fmt.Sprintf("%03d", 17*i))
		dead.Spec.RenewTime.Time = testNow.Add(-time.Minute)
	}
	return l
}

func TestStatusOutputs(t *testing.T) {
	_, busy := busyFleet(t)
	busy.older("zombie", "flotilla-0", "0x4000000000000000-0x8000000000000000").Annotations[leaseapi.RunningAnnotation] = "1"
	busy.at("01").Annotations[leaseapi.RunningAnnotation] = "4"
	busy[leaserecord.MemberLease(testFleet, "flotilla-0")].Annotations[leaseapi.DrainAnnotation] = "2027-01-02T03:00:00Z"
	golden(t, "status-busy", status.Of(busy.read()), tableStatus(false, false))
	calm := newLeases(t, testPlan(t))
	calm.census(testPlan(t), 12, 4)
	golden(t, "status-calm", status.Of(calm.read()), tableStatus(false, false))
	golden(t, "status-great", status.Of(largeFleet(t, 195).read()), tableStatus(false, false))
	golden(t, "status-nothing", status.Of(leases{}.read()), tableStatus(false, false))
	calm[leaseapi.PlanLease(testFleet)].Annotations[leaseapi.DocumentAnnotation] = "{"
	golden(t, "status-junk", status.Of(calm.read()), tableStatus(false, false))
}

// TestOneScreen checks that a fleet of 200 shards fits on a terminal, and that --all lists every
// shard.
func TestOneScreen(t *testing.T) {
	v := status.Of(largeFleet(t, 195).read())
	var short, long bytes.Buffer
	tableStatus(false, false)(&short, v)
	tableStatus(true, false)(&long, v)
	if n := strings.Count(short.String(), "\n"); n > 45 {
		t.Errorf("%d lines:\n%s", n, short.String())
	}
	if n := strings.Count(long.String(), "namespaces/"); n < 195 || strings.Contains(long.String(), "more") {
		t.Errorf("%d shards:\n%s", n, long.String())
	}
}

// statusOf runs a command and returns the exit status that the process would have.
func (c *cluster) statusOf(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	root := c.root()
	var stdout bytes.Buffer
	root.SetOut(&stdout)
	root.SetErr(&stdout)
	root.SetArgs(args)
	if err := root.ExecuteContext(t.Context()); err != nil {
		return stdout.String() + err.Error(), 1
	}
	return stdout.String(), ExitStatus(root)
}

func (c *cluster) root() *cobra.Command {
	root := &cobra.Command{Use: "flotilla", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(Commands(Config{
		Check: acceptAll, Clock: c.clock,
		Connect:   func(Target) (kubernetes.Interface, error) { return c.Clientset, nil },
		Interrupt: context.WithCancel, // Signals cannot reach a bubble of virtual time.
	})...)
	return root
}

func TestStatusCodes(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(leases)
		want   int
	}{
		{"well", func(leases) {}, 0},
		{"a note", func(l leases) { l.member("flotilla-2", testPlan(t)).Annotations[leaseapi.DrainAnnotation] = "x" }, 0},
		{"a warning", func(l leases) { l[leaseapi.PlanLease(testFleet)].Annotations[leaseapi.RejectedAnnotation] = "x" }, StatusWarnings},
		{"an error", func(l leases) {
			l[leaseapi.PlanLease(testFleet)].Annotations[leaseapi.RejectedAnnotation] = "x"
			l.at("02").Spec.RenewTime.Time = testNow.Add(-time.Minute)
		}, StatusErrors},
		{"no fleet", func(l leases) { clear(l) }, StatusErrors},
	} {
		l := newLeases(t, testPlan(t))
		test.change(l)
		for _, form := range []string{formTable, formJSON, formYAML} {
			out, code := newCluster(l).statusOf(t, "status", "--once", "-o", form)
			if code != test.want {
				t.Errorf("%s: %s ends with %d, want %d\n%s", test.name, form, code, test.want, out)
			}
		}
	}
	c := newCluster(newLeases(t, testPlan(t)))
	c.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("down") })
	if out, code := c.statusOf(t, "status"); code != 1 || !strings.Contains(out, "listing the Leases") {
		t.Errorf("a failure ends with %d: %s", code, out)
	}
}

// TestStatusLooksAgain checks that the command looks again at what one look cannot decide, until it
// has gone or has lasted.
func TestStatusLooksAgain(t *testing.T) {
	for _, test := range []struct {
		name  string
		ends  time.Duration // 0 means never, less that shards take turns.
		args  []string
		want  int
		takes time.Duration
		says  string
	}{
		{"goes", 3500 * time.Millisecond, nil, 0, 4 * time.Second, "All is well"},
		{"lasts", 0, nil, StatusWarnings, 10 * time.Second, "Warning: NotRunning: shard namespaces/02 is held by flotilla-0"},
		{"once", 0, []string{"--once"}, 0, 0, "Nothing is wrong; 1 shard does not run yet"},
		{"has no time", 0, []string{"--request-timeout=5s"}, 1, 5 * time.Second, "--request-timeout 5s has passed: what is wrong may be missing"},
		{"another one each time", -1, nil, 0, 10 * time.Second, "Nothing is wrong; 1 shard does not run yet"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLeases(t, testPlan(t))
				l.age(time.Since(testNow))
				delete(l.at("02").Annotations, leaseapi.RunningAnnotation)
				c := newCluster(l)
				c.clock = clock.RealClock{} // virtual
				began := time.Now()
				c.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
					// Members renew, and in the end the holder publishes that it runs.
					l.age(time.Since(began) - l.aged(began))
					if test.ends < 0 {
						for i, name := range []string{"01", "02"} {
							l.at(name).Annotations[leaseapi.RunningAnnotation] = []string{"4", "5"}[i] // its term
							if int(time.Since(began)/time.Second)%2 == i {
								delete(l.at(name).Annotations, leaseapi.RunningAnnotation)
							}
						}
					}
					if test.ends > 0 && time.Since(began) >= test.ends {
						l.at("02").Annotations[leaseapi.RunningAnnotation] = "5"
					}
					return true, &coordinationv1.LeaseList{Items: l.list()}, nil
				})
				out, code := c.statusOf(t, append([]string{"status"}, test.args...)...)
				if took := time.Since(began); code != test.want || took != test.takes {
					t.Errorf("ended with %d after %v, want %d after %v\n%s", code, took, test.want, test.takes, out)
				}
				if !strings.Contains(out, test.says) || !strings.Contains(out, "namespaces/02") {
					t.Errorf("says\n%s\nwant %q and the shards", out, test.says)
				}
			})
		})
	}
}

// age moves all timestamps by d.
func (l leases) age(d time.Duration) {
	for _, lease := range l {
		lease.Spec.AcquireTime, lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(lease.Spec.AcquireTime.Add(d))), ptr.To(metav1.NewMicroTime(lease.Spec.RenewTime.Add(d)))
	}
}

// aged returns how far the timestamps have been moved since began, when they were a second old.
func (l leases) aged(began time.Time) time.Duration {
	return l[leaseapi.PlanLease(testFleet)].Spec.RenewTime.Sub(began) + time.Second
}

// TestLeasesOnly has an API server that refuses everything but Leases. Only events requests
// anything else, and it says so.
func TestLeasesOnly(t *testing.T) {
	for _, args := range []string{
		"status --once", "status", "plan show", "plan simulate --members=3", "plan rebalance --dry-run", "explain web", "events", "drain flotilla-1 --force --wait=false", "undrain flotilla-1",
	} {
		l := newLeases(t, testPlan(t))
		l.census(testPlan(t), 10, 20, 30)
		c := newCluster(l)
		var others []string
		c.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
			resource, verb := action.GetResource(), action.GetVerb()
			if resource.Resource == "leases" && action.GetNamespace() == metav1.NamespaceSystem && slices.Contains([]string{"get", "list", "watch", "update"}, verb) {
				return false, nil, nil
			}
			others = append(others, verb+" "+resource.Resource)
			return true, nil, apierrors.NewForbidden(resource.GroupResource(), "", errors.New("not for you"))
		})
		out, code := c.statusOf(t, strings.Fields(args)...)
		if code != 0 {
			t.Errorf("%s: %d\n%s", args, code, out)
		}
		if args == "events" {
			if !slices.Equal(others, []string{"list events"}) || !strings.Contains(out, "Kubernetes events are left out: this user may not list them in namespace kube-system\n") || !strings.Contains(out, "acquired by flotilla-0_0123") {
				t.Errorf("events asked for %q and says\n%s", others, out)
			}
		} else if len(others) > 0 {
			t.Errorf("%s asked for %q", args, others)
		}
	}
}

// lines is a writer that is safe for concurrent use.
type lines struct {
	mu   sync.Mutex
	b    bytes.Buffer
	took string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := l.b.String()
	l.took += text
	l.b.Reset()
	return text
}

// all returns all that has been taken.
func (l *lines) all() string { return l.took }

// livingFleet is a fleet whose members renew, in a cluster that a command watches.
type livingFleet struct {
	t       *testing.T
	cluster *cluster
	leases  leases
	version int
}

func (f *livingFleet) update(lease *coordinationv1.Lease) {
	f.t.Helper()
	f.version++
	lease.ResourceVersion = fmt.Sprint(100 + f.version)
	if err := f.cluster.Tracker().Update(coordinationv1.SchemeGroupVersion.WithResource("leases"), lease.DeepCopy(), metav1.NamespaceSystem); err != nil {
		f.t.Error(err)
	}
}

// pass lets time pass, while members renew all Leases except dead ones.
func (f *livingFleet) pass(d time.Duration, dead ...*coordinationv1.Lease) {
	for range d / (2 * time.Second) {
		time.Sleep(2 * time.Second) // virtual
		for _, name := range sortedKeys(f.leases) {
			if lease := f.leases[name]; ptr.Deref(lease.Spec.HolderIdentity, "") != "" && !slices.Contains(dead, lease) {
				lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
				f.update(lease)
			}
		}
	}
	synctest.Wait()
}

// acquire makes a member hold and run a shard, in that term, from now on.
func (f *livingFleet) acquire(lease *coordinationv1.Lease, member string, term int32) {
	lease.Spec.HolderIdentity, lease.Spec.LeaseTransitions = ptr.To(member+"_0123"), ptr.To(term)
	lease.Spec.AcquireTime, lease.Spec.RenewTime = ptr.To(metav1.NowMicro()), ptr.To(metav1.NowMicro())
	f.update(lease)
	lease.Annotations[leaseapi.RunningAnnotation] = fmt.Sprint(term)
}

// says requires that these texts have been written since the last call. Without texts, nothing may
// have been written.
func (f *livingFleet) says(w *lines, wants ...string) {
	f.t.Helper()
	text := w.take()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			f.t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if len(wants) == 0 && text != "" {
		f.t.Errorf("written without a reason:\n%s", text)
	}
}

// TestWatch: with one list and one watch, every change of a Lease becomes a line, and so does every
// finding that comes or goes.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := testPlan(t)
		l := newLeases(t, plan)
		l.age(time.Since(testNow))
		c := newCluster(l)
		c.clock = clock.RealClock{} // virtual
		ctx, cancel := context.WithCancel(t.Context())
		out, done := &lines{}, make(chan error, 2)
		events := &lines{}
		for _, w := range []struct {
			to   *lines
			args []string
		}{{out, []string{"status", "--watch"}}, {events, []string{"events", "--watch", "-o", "json"}}} {
			root := c.root()
			root.SetOut(w.to)
			root.SetArgs(w.args)
			go func() { done <- root.ExecuteContext(ctx) }()
		}
		f := &livingFleet{t: t, cluster: c, leases: l}
		f.pass(6 * time.Second)
		f.says(out, "fleet flotilla, plan generation 3: 6 shards, 2 members live, 0 findings\n")
		f.says(events)

		*l.at("00").Spec.HolderIdentity = ""
		f.update(l.at("00"))
		f.acquire(l.at("00"), "flotilla-1", 4)
		f.pass(4 * time.Second)
		f.says(out, "released: shard namespaces/00: released by flotilla-0_0123 after term 3", "acquired: shard namespaces/00: acquired by flotilla-1_0123, term 4", "running: shard namespaces/00")
		if text := events.take(); strings.Count(text, "\n") != 3 || !strings.Contains(text, `"kind":"released"`) {
			t.Errorf("events:\n%s", text)
		}

		f.pass(28*time.Second, l.at("01"))
		f.says(out, "expired: shard namespaces/01: flotilla-1_0123 has not renewed for 1", "Warning: Unowned: shard namespaces/01", "Error: Unowned: shard namespaces/01")
		if n := strings.Count(out.all(), "over: "); n > 0 {
			t.Errorf("%d findings are reported as over but have become worse:\n%s", n, out.all())
		}
		f.acquire(l.at("01"), "flotilla-0", 5)
		f.pass(4 * time.Second)
		f.says(out, "taken-over: shard namespaces/01: taken over by flotilla-0_0123 from flotilla-1_0123, which had not renewed for 28s, term 5 (warning)", "over: Unowned: namespaces/01\n")

		l["flotilla-member-flotilla-1"].Annotations[leaseapi.DrainAnnotation] = "x"
		f.pass(4 * time.Second)
		f.says(out, "drained: member flotilla-1: drained", "Note: MemberDrained")
		f.says(events, `"kind":"taken-over"`, `"kind":"drained"`)
		f.pass(30*time.Second, slices.Collect(maps.Values(l))...)
		f.says(out, "NobodyRenews", "silent: member flotilla-0")
		f.pass(4 * time.Second)
		f.says(out, "returned: member flotilla-0: flotilla-0_0123 renews its Lease again\n")

		reads := map[string]int{}
		for _, a := range c.Actions() {
			reads[a.GetVerb()]++
		}
		if reads["list"] > 6 || reads["watch"] > 2 || len(reads) != 2 {
			t.Errorf("requests: %v, want a list to begin with, and a list and a watch for each command", reads)
		}
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("interrupted, it ends with %v", err)
			}
		}
	})
}

// TestFit: a table is cut to the terminal's width, findings are not, and colours change no text.
func TestFit(t *testing.T) {
	_, l := busyFleet(t)
	var b bytes.Buffer
	tableStatus(false, false)(&b, status.Of(l.read()))
	text := b.String()
	if got := (screen{}).fit(text); got != text {
		t.Error("changed although it is not a terminal")
	}
	on := screen{width: 60, height: 24}
	cut := on.fit(text)
	for line := range strings.Lines(cut) {
		finding := strings.HasPrefix(line, "Error: ") || strings.HasPrefix(line, "Warning: ") || strings.HasPrefix(line, "  see https://")
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > on.width && !finding {
			t.Errorf("%d characters: %s", n, line)
		}
	}
	on.colour = true
	coloured := on.fit(text)
	for _, want := range []string{bold + red + "Error:" + plain, bold + yellow + "Warning:" + plain, red + "unowned" + plain} {
		if !strings.Contains(coloured, want) {
			t.Errorf("%q is not in\n%q", want, coloured)
		}
	}
	for _, escape := range []string{red, yellow, green, bold, plain} {
		coloured = strings.ReplaceAll(coloured, escape, "")
	}
	linked := screen{width: 60, height: 24, links: true}
	const page = "https://github.com/flotilla-kube/flotilla/blob/main/docs/runbooks/FlotillaPlanRefused.md"
	whole := "  see \x1b]8;;" + page + "\x1b\\" + page + "\x1b]8;;\x1b\\\n"
	if got := linked.fit(text); !strings.Contains(got, whole) || strings.Contains(strings.ReplaceAll(got, whole, ""), page) {
		t.Errorf("want %q in\n%q", whole, got)
	}
	// If each line is one on the screen, the text of a link is cut, but not its target.
	short := "  see \x1b]8;;" + page + "\x1b\\" + page[:60-len("  see ")-1] + "…\x1b]8;;\x1b\\\n"
	if got := linked.fit(linked.wrap(text)); !strings.Contains(got, short) {
		t.Errorf("want %q in\n%q", short, got)
	}
	if coloured != cut {
		t.Errorf("the text without colours differs:\n%s", coloured)
	}
	if wrapped := on.wrap(text); slices.ContainsFunc(strings.Split(wrapped, "\n"), func(line string) bool {
		return (isFinding(line) || strings.HasPrefix(line, "  see ")) && len([]rune(line)) > on.width
	}) ||
		strings.ReplaceAll(wrapped, "\n  ", "") != strings.ReplaceAll(text, "\n  ", "") {
		t.Errorf("wrapped:\n%s", wrapped)
	}
	b.Reset()
	if err := redraw(&b, screen{width: 60, height: 12}, text); err != nil || strings.Count(b.String(), "\n") != 10 || !strings.Contains(b.String(), "\r\n...") {
		t.Errorf("redrawn: %v\n%q", err, b.String())
	}
}

// TestSupportsLinks checks that only terminals that are known to show links get them.
func TestSupportsLinks(t *testing.T) {
	for env, want := range map[string]bool{
		"TERM=xterm-256color": false, "TERM=xterm-256color VTE_VERSION=6800": true, "TERM=xterm-256color VTE_VERSION=4999": false,
		"TERM=xterm VTE_VERSION=new": false, "TERM=xterm-kitty": true, "TERM=alacritty": true, "TERM=foot": true,
		"TERM=xterm-256color TERM_PROGRAM=iTerm.app": true, "TERM=xterm-256color TERM_PROGRAM=Apple_Terminal": false, "TERM=xterm WT_SESSION=1": true,
		"TERM=xterm KONSOLE_VERSION=220400": true, "TERM=linux KONSOLE_VERSION=220400": false, "": false, "WT_SESSION=1": false,
		"TERM=dumb WT_SESSION=1": false, "TERM=dumb FORCE_HYPERLINK=1": false, "TERM=xterm-kitty NO_COLOR=1": false, "TERM=xterm FORCE_HYPERLINK=1 NO_COLOR=1": false,
		"TERM=screen-256color WT_SESSION=1": false, "TERM=screen VTE_VERSION=6800": false,
		"TERM=screen.xterm-256color KITTY_WINDOW_ID=1": false, "TERM=tmux-256color TERM_PROGRAM=iTerm.app": false,
		"TERM=tmux-256color FORCE_HYPERLINK=1": true,
		"TERM=xterm FORCE_HYPERLINK=1":         true, "TERM=linux FORCE_HYPERLINK=1": true, "TERM=xterm-kitty FORCE_HYPERLINK=0": false,
	} {
		vars := map[string]string{}
		for _, pair := range strings.Fields(env) {
			name, value, _ := strings.Cut(pair, "=")
			vars[name] = value
		}
		if got := supportsLinks(func(name string) string { return vars[name] }); got != want {
			t.Errorf("%q: %v, want %v", env, got, want)
		}
	}
}

// TestNothingBreaksStatus reads nonsense. Every format must be printed, without any control
// sequence for a terminal.
func TestNothingBreaksStatus(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	words := []string{"", "\x1b[2J", "\xff\n", "-1", "0x0-0x1", "flotilla-1_x", "{}", "99999999999999999999"}
	for range 100 {
		_, l := busyFleet(t)
		l[leaserecord.MemberLease(testFleet, "flotilla-1")].Annotations[leaseapi.LeaderLocksAnnotation] = "kcm"
		for _, lease := range l {
			for key := range lease.Annotations {
				if random.IntN(2) == 0 {
					lease.Annotations[key] = words[random.IntN(len(words))]
				}
			}
			if random.IntN(2) == 0 {
				lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: ptr.To(words[random.IntN(len(words))])}
			}
		}
		v := status.Of(l.read())
		for _, all := range []bool{false, true} {
			var b bytes.Buffer
			tableStatus(all, false)(&b, v)
			if text := b.String(); status.Plain(strings.ReplaceAll(text, "\n", "")) != strings.ReplaceAll(text, "\n", "") {
				t.Errorf("%q", text)
			}
		}
		for _, form := range []string{formJSON, formYAML} {
			if err := print(&bytes.Buffer{}, form, v, nil); err != nil {
				t.Error(err)
			}
		}
		if text, err := json.Marshal(mergeEvents(status.Past(l.read()), nil)); err != nil {
			t.Errorf("%v: %s", err, text)
		}
	}
}
