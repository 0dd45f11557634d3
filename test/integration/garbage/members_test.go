package garbage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
	"github.com/flotilla-kube/flotilla/test/controlplane"
	"github.com/flotilla-kube/flotilla/test/harness"
)

var processes = flag.Bool("processes", false, "run TestMembersSameAsStock, which needs bin/flotilla")

// TestMembersSameAsStock is TestSameAsStock with a fleet of three processes instead of collectors
// in the test's own: it kills and restarts members, pins the cluster's collector to other members
// and cuts ranges, each while garbage is collected. Each write must come from the holder of a shard
// that has the garbage collector.
func TestMembersSameAsStock(t *testing.T) {
	if !*processes || *graphs == 0 {
		t.Skip("left out: takes minutes, make long RUN=garbage")
	}
	theirs := harness.StartPlane(t, controlplane.Options{ShardedListAndWatch: true, AuditObjects: true})
	stock, fleet := newAPI(t), newAPIOf(t, theirs)
	prepare(t, stock, fleet)
	p := newPair(t, 0, stock, fleet, *graphs, tally{})
	p.start = func() parts { return newMembers(t, theirs, p.fleet, p.random.Uint64(), p.tally) }
	p.run()
	t.Logf("%v", p.tally)
	p.tally.require(t, "Background", "Foreground", "Orphan", "order", "gone", "kept", "late", "killed", "restarted", "pinned", "cut")
	judge(t, theirs)
}

// judge judges the audit log of a control plane whose fleet only collects garbage.
func judge(t *testing.T, plane *controlplane.ControlPlane) {
	t.Helper()
	report := harness.Judge(t, plane, audit.Options{Controllers: catalogue.Identities()})
	writers := 0
	for id, by := range report.Writes {
		if id.Ring == "namespaces" {
			writers = max(writers, len(by))
		}
	}
	if report.Objects.Collected == 0 || report.Plans < 2 || writers < 2 {
		t.Errorf("judged: %+v, %d plans, at most %d writers of one range; want collected objects, several plans, and several writers of some range", report.Objects, report.Plans, writers)
	}
}

// members are a fleet's processes. Their garbage collectors are the only controllers.
type members struct {
	*testing.T
	plane        *controlplane.ControlPlane
	sandbox      *sandbox
	random       *rand.Rand
	tally        tally
	binary, home string

	mu sync.Mutex
	// running are the processes by the number of their member; started counts all processes.
	running [3]*harness.Manager
	started int
	// deck are the next kinds of disturbances.
	deck []int
	// isolated are the namespaces that are to have ranges of their own. Nobody merges ranges again,
	// because the members do not replan.
	isolated []string
}

func newMembers(t *testing.T, plane *controlplane.ControlPlane, sb *sandbox, seed uint64, count tally) *members {
	m := &members{
		T: t, plane: plane, sandbox: sb, random: rand.New(rand.NewPCG(seed, 0)), tally: count,
		binary: harness.Binary(t, plane, harness.Fleet), home: t.TempDir(),
	}
	m.begin()
	return m
}

// launch starts the process of a member.
func (m *members) launch(i int) {
	m.started++
	spec := harness.Member(memberName(i), "--shards=4", "--controllers=garbage-collector-controller",
		"--leader-elect-lease-duration=10s", "--leader-elect-renew-deadline=7s", "--leader-elect-retry-period=1s", "--rebalance-delay=1s")
	spec.Name = fmt.Sprintf("%s-%d", spec.Name, m.started)
	m.running[i] = harness.Run(m.T, m.plane, spec)
}

func memberName(i int) string { return fmt.Sprintf("member-%d", i) }

// begin implements parts.
func (m *members) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.running {
		m.launch(i)
	}
}

// stop implements parts.
func (m *members) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := harness.InParallel(len(m.running), func(i int) error {
		return m.leave(context.WithoutCancel(m.Context()), i)
	})
	if err != nil {
		m.Error(err)
	}
}

// leave ends a member as a kubelet does, once it serves. Before that it does not handle signals, and
// would not exit with status 0.
func (m *members) leave(ctx context.Context, i int) error {
	if _, err := harness.Await(ctx, *patience, memberName(i)+" serves", m.running[i].Healthy); err != nil {
		return err
	}
	return m.running[i].Leave(ctx)
}

// working implements parts: each member runs all of its shards.
func (m *members) working(ctx context.Context) error {
	m.mu.Lock()
	running := m.running
	m.mu.Unlock()
	var errs []error
	for _, p := range running {
		errs = append(errs, p.Running(), p.Complete(ctx))
	}
	return errors.Join(errs...)
}

// disturb implements parts.
func (m *members) disturb() (await func()) {
	return atRandom(m.random, 2+m.random.IntN(2), 300*time.Millisecond, m.disturbOnce)
}

func (m *members) disturbOnce() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.deck) == 0 {
		m.deck = m.random.Perm(4)
	}
	kind, i := m.deck[0], m.random.IntN(len(m.running))
	m.deck = m.deck[1:]
	if err := m.running[i].Running(); err != nil {
		m.Error(err)
		return
	}
	switch kind {
	case 0:
		m.tally["killed"]++
		if err := m.running[i].Kill(); err != nil {
			m.Error(err)
		}
		m.launch(i)
	case 1:
		m.tally["restarted"]++
		if err := m.leave(m.Context(), i); err != nil {
			m.Error(err)
		}
		m.launch(i)
	case 2:
		m.tally["pinned"]++
		m.plan("pin", "cluster/garbage", memberName(i))
	case 3:
		space := m.sandbox.spaces[m.random.IntN(len(m.sandbox.spaces))]
		if n := slices.Index(m.isolated, space); n >= 0 {
			m.isolated = slices.Delete(m.isolated, n, n+1)
			m.plan("unisolate", space)
		} else {
			m.tally["cut"]++
			m.isolated = append(m.isolated, space)
			m.plan("isolate", space)
		}
	}
}

// plan changes the plan. The fleet carries that out later.
func (m *members) plan(args ...string) {
	ctx, cancel := context.WithTimeout(m.Context(), *patience)
	defer cancel()
	command := exec.CommandContext(ctx, m.binary, append([]string{"plan"}, args...)...)
	command.Env = []string{"KUBECONFIG=" + m.plane.AdminKubeconfig(), "HOME=" + m.home}
	if out, err := command.CombinedOutput(); err != nil {
		m.Errorf("flotilla plan %s: %v: %s", strings.Join(args, " "), err, out)
	}
}
