package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/fleet/leaseapi"
	"github.com/flotilla-kube/flotilla/pkg/shard"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// managerUser is the product's user.
const managerUser = "system:kube-controller-manager"

// settle is how long an idle fleet is left alone before it is measured: holders first count their
// objects after ten seconds, and report the count once.
const settle = 15 * time.Second

// scenario is one run with one size.
type scenario struct {
	options
	crews         *crews
	plane         *controlplane.ControlPlane
	client        kubernetes.Interface
	ledger        *ledger
	first, second shard.Plan
	generation    int64
	result        *result
	began         time.Time
}

// runFleet runs the scenario with this many members.
func runFleet(ctx context.Context, o options, members int) (r result, err error) {
	if o.slower == 0 {
		o.slower = 1
		if members > 30 {
			o.slower = 3
		}
	}
	r = result{Members: members, LoadBefore: load(), LeaseDuration: timing(o.slower).LeaseDuration.Seconds()}
	s := &scenario{options: o, result: &r, generation: 1, began: time.Now()}
	if s.first, s.second, err = plansFor(members); err != nil {
		return r, err
	}
	r.Shards = len(s.first.Shards())
	s.ledger = newLedger(s.first, s.second)
	s.sayf("%d members, %d shards, load %s", members, r.Shards, r.LoadBefore)
	silent, err := silence(o.out)
	if err != nil {
		return r, err
	}
	planeOptions := controlplane.Options{APIServerArgs: append([]string{"--audit-policy-file=" + silent}, o.server...)}
	if o.keep {
		planeOptions.Dir = filepath.Join(o.out, fmt.Sprintf("plane-%d-%d", members, time.Now().Unix()))
	}
	if s.plane, err = controlplane.Start(ctx, planeOptions); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.plane.Stop()) }()
	if s.client, err = kubernetes.NewForConfig(s.plane.AdminConfig()); err != nil {
		return r, err
	}
	if err := s.prepare(members); err != nil {
		return r, err
	}
	defer s.crews.close()
	err = s.walk(ctx)
	if err != nil {
		s.keepLogs()
		s.result.Lost = s.lostSince(0)
		s.sayf("memberships lost: %v; %s", s.result.Lost, readsOf(s.crews.told(listed, 0)))
	}
	for _, p := range s.crews.up() {
		_, failure := s.crews.kill(p)
		err = errors.Join(err, failure)
	}
	r.LoadAfter, r.Took = load(), time.Since(s.began).Seconds()
	r.Overlaps = s.ledger.overlaps()
	if len(r.Overlaps) > 0 {
		err = errors.Join(err, fmt.Errorf("work of two members overlapped %d times: %s", len(r.Overlaps), r.Overlaps[0]))
	}
	return r, errors.Join(err, s.crews.err())
}

// silence writes an audit policy that logs nothing. With every Lease in full, the log would cost
// the API server as much as the writes.
func silence(folder string) (string, error) {
	path, err := filepath.Abs(filepath.Join(folder, "no-audit.yaml"))
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: None\n"), 0o644)
}

func (s *scenario) sayf(format string, args ...any) {
	fmt.Printf("%6.1f s  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// prepare creates what the crews need.
func (s *scenario) prepare(members int) error {
	exe, err := executable()
	if err != nil {
		return err
	}
	nice, err := exec.LookPath("nice")
	if err != nil {
		return err
	}
	kubeconfig, err := s.plane.Kubeconfig(managerUser)
	if err != nil {
		return err
	}
	document, err := s.first.Document()
	if err != nil {
		return err
	}
	plan := filepath.Join(s.plane.Dir(), "plan.yaml")
	if err := os.WriteFile(plan, []byte(document), 0o644); err != nil {
		return err
	}
	socket := filepath.Join(s.plane.Dir(), "s")
	s.crews = &crews{
		plane: s.plane, options: s.options, ledger: s.ledger, nice: nice, exe: exe, all: layOut(members, s.perCrew),
		common: crewOptions{Socket: socket, Kubeconfig: kubeconfig, Plan: plan, Scrape: s.scrape, Slower: s.slower},
	}
	return s.crews.listen(socket)
}

// walk runs the steps of the scenario.
func (s *scenario) walk(ctx context.Context) error {
	if err := s.join(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"idle", s.idles},
		{"kill", func(ctx context.Context) error { return s.kill(ctx, "kill", "crew-solo") }},
		{"kill-tenth", func(ctx context.Context) error { return s.kill(ctx, "kill-tenth", "crew-tenth") }},
		{"roll", s.roll},
		{"plan", s.changePlan},
		{"restart", s.restart},
	} {
		if !slices.Contains(s.steps, step.name) {
			continue
		}
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// await waits for a condition, and fails early if something spoils the run.
func (s *scenario) await(ctx context.Context, condition func(context.Context) error) error {
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	for {
		err := condition(ctx)
		if fault := s.crews.err(); fault != nil || err == nil {
			return fault
		}
		select {
		case <-whole.Done():
			return fmt.Errorf("%w; last seen: %w", context.Cause(whole), err)
		case <-ctx.Done():
			if whole.Err() == nil {
				return fmt.Errorf("not within %v: %w", s.patience, err)
			}
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// awaitWhole returns when every part came to have exactly one owner.
func (s *scenario) awaitWhole(ctx context.Context) (at int64, err error) {
	err = s.await(ctx, func(context.Context) error {
		at, err = s.ledger.isWhole()
		return err
	})
	return at, err
}

// awaitReady waits until everything has an owner and all members are ready.
func (s *scenario) awaitReady(ctx context.Context) error {
	return s.await(ctx, func(ctx context.Context) error {
		if _, err := s.ledger.isWhole(); err != nil {
			return err
		}
		return s.crews.ready(ctx, s.generation)
	})
}

// took records how long a step took until everything had an owner, and until all members were
// ready, and the gaps.
func (s *scenario) took(name string, from, whole int64) *step {
	now := monotonic()
	gaps := s.ledger.gaps(from, now)
	t := step{Name: name, Whole: between(from, whole).Seconds(), Ready: between(from, now).Seconds(), Moves: len(gaps)}
	if n := len(gaps); n > 0 {
		t.GapP50, t.GapP99, t.GapMost = audit.Percentile(gaps, 50).Seconds(), audit.Percentile(gaps, 99).Seconds(), gaps[n-1].Seconds()
	}
	for _, n := range s.lostSince(from) {
		t.Lost += n
	}
	t.Reads = readsOf(s.crews.told(listed, from))
	s.result.Steps = append(s.result.Steps, t)
	s.sayf("%-10s whole after %.2f s, ready after %.2f s; %d moves, unowned p50 %.3f s, p99 %.3f s, most %.3f s; %d lists, %d at most in a second; %d memberships lost",
		name, t.Whole, t.Ready, t.Moves, t.GapP50, t.GapP99, t.GapMost, t.Reads.Count, t.Reads.MostASecond, t.Lost)
	return &s.result.Steps[len(s.result.Steps)-1]
}

// lostSince counts the memberships that have ended unasked, by reason.
func (s *scenario) lostSince(from int64) map[string]int {
	reasons := map[string]int{}
	for _, m := range s.crews.told(lost, from) {
		reason, _, _ := strings.Cut(m.Text, ";") // the last request's failure names the Lease
		reasons[reason]++
	}
	return reasons
}

// profile makes all crews write a CPU profile, with -profiles.
func (s *scenario) profile(ctx context.Context, when string, d time.Duration) error {
	for _, p := range s.crews.up() {
		name, err := filepath.Abs(filepath.Join(s.out, fmt.Sprintf("%s-%d-%s.pprof", when, s.result.Members, p.name)))
		if err != nil || !s.profiles {
			return err
		}
		if _, err := p.ask(ctx, question{Profile: name, Seconds: int(d.Seconds())}); err != nil {
			return err
		}
	}
	return nil
}

func (s *scenario) join(ctx context.Context) error {
	from := monotonic()
	for _, p := range s.crews.all {
		if err := s.crews.start(ctx, p); err != nil {
			return err
		}
	}
	if err := s.profile(ctx, "join", s.idle); err != nil {
		return err
	}
	whole, err := s.awaitWhole(ctx)
	if err == nil {
		err = s.awaitReady(ctx)
	}
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	s.took("join", from, whole)
	return nil
}

func (s *scenario) idles(ctx context.Context) error {
	if err := pause(ctx, settle); err != nil {
		return err
	}
	if err := s.profile(ctx, "idle", s.idle); err != nil {
		return err
	}
	before, err := s.look(ctx, true)
	if err == nil {
		err = pause(ctx, s.idle)
	}
	if err != nil {
		return err
	}
	after, err := s.look(ctx, false)
	if err != nil {
		return err
	}
	s.result.Idle = s.figures(before, after)
	s.sayf("idle       %s", s.result.Idle)
	return nil
}

// kill kills a crew, waits until everything has an owner, and starts the crew again.
func (s *scenario) kill(ctx context.Context, name, crew string) error {
	p := s.crews.find(crew)
	if p == nil {
		return nil
	}
	from, err := s.crews.kill(p)
	if err != nil {
		return err
	}
	whole, err := s.awaitWhole(ctx)
	if err == nil {
		err = s.awaitReady(ctx)
	}
	if err != nil {
		return err
	}
	s.took(name, from, whole)
	return s.comeBack(ctx, name+"-back", p)
}

func (s *scenario) comeBack(ctx context.Context, name string, p *process) error {
	from := monotonic()
	if err := s.crews.start(ctx, p); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	whole, err := s.ledger.isWhole()
	if err == nil {
		s.took(name, from, max(from, whole))
	}
	return err
}

// roll restarts crew after crew, each once all members are ready.
func (s *scenario) roll(ctx context.Context) error {
	from := monotonic()
	for _, p := range s.crews.all {
		if err := s.crews.stop(ctx, p); err != nil {
			return err
		}
		if err := s.crews.start(ctx, p); err != nil {
			return err
		}
		if err := s.awaitReady(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	whole, err := s.ledger.isWhole()
	if err == nil {
		s.took("roll", from, whole)
	}
	return err
}

// changePlan cuts all ranges differently.
func (s *scenario) changePlan(ctx context.Context) error {
	from := monotonic()
	leases := s.client.CoordinationV1().Leases(namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := leases.Get(ctx, leaseapi.PlanLease(fleetName), metav1.GetOptions{})
		if err != nil {
			return err
		}
		next, err := leaseapi.WithPlan(fleetName, lease, s.second)
		if err != nil {
			return err
		}
		_, err = leases.Update(ctx, next, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	s.generation = s.second.Generation
	if err := s.profile(ctx, "plan", s.idle); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	whole, err := s.ledger.isWhole()
	if err == nil {
		s.took("plan", from, whole)
	}
	return err
}

// restart stops the API server and starts it again. Times count from when it answers.
func (s *scenario) restart(ctx context.Context) error {
	down := monotonic()
	if err := s.plane.StopAPIServer(); err != nil {
		return err
	}
	if err := pause(ctx, s.outage); err != nil {
		return err
	}
	if err := s.plane.StartAPIServer(ctx); err != nil {
		return err
	}
	from := monotonic()
	// A member learns what it has missed within a lease duration.
	if err := pause(ctx, timing(s.slower).LeaseDuration); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	whole, err := s.ledger.isWhole()
	if err != nil {
		return err
	}
	t := s.took("restart", from, max(from, whole))
	t.Down = between(down, from).Seconds()
	t.Reads = readsOf(s.crews.told(listed, down))
	s.sayf("           the API server was away for %.1f s; %s", t.Down, t.Reads)
	return nil
}

// keepLogs copies the crews' logs to the results.
func (s *scenario) keepLogs() {
	for _, p := range s.crews.all {
		if p.Process == nil {
			continue
		}
		if text, err := os.ReadFile(p.LogPath()); err == nil {
			_ = os.WriteFile(filepath.Join(s.out, p.name+".log"), text, 0o644)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
