package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flotilla-kube/flotilla/test/bench/measure"
	"github.com/flotilla-kube/flotilla/test/controlplane"
)

// crewNiceness is the priority of crews. In a cluster members have machines of their own, and do not
// take the API server's CPU: with equal priorities, a dozen busy crews leave it a twelfth of the
// machine, and heartbeats fail.
const crewNiceness = "10"

// crews are the processes of the fleet, as the driver sees them.
type crews struct {
	plane   *controlplane.ControlPlane
	options options
	ledger  *ledger
	// nice is the path of nice, exe that of this program.
	nice, exe string
	common    crewOptions
	socket    net.Listener
	readers   sync.WaitGroup
	all       []*process

	mu    sync.Mutex
	reads []message // of kinds listed, watched and lost
	fault error
}

// process is a crew, which has at most one process at a time.
type process struct {
	name    string
	members []string
	starts  int
	// leaving is set before the process is ended.
	leaving atomic.Bool
	*controlplane.Process

	mu        sync.Mutex
	conn      net.Conn
	connected chan struct{}
	closed    chan struct{}
	asked     int64
	answers   map[int64]chan status
}

// layOut assigns members to processes: one member alone, a tenth of all in one process if that is
// more than one member, and the others.
func layOut(n, perCrew int) []*process {
	var all []*process
	next := 0
	add := func(name string, size int) {
		p := &process{name: name}
		for range size {
			p.members = append(p.members, fmt.Sprintf("flotilla-%d", next))
			next++
		}
		all = append(all, p)
	}
	add("crew-solo", 1)
	if n >= 20 {
		add("crew-tenth", n/10)
	}
	// A small fleet also has more than two processes.
	crews := max((n-next+perCrew-1)/perCrew, min(n-next, 2))
	for i := range crews {
		add(fmt.Sprintf("crew-%02d", i), (n-next+crews-i-1)/(crews-i))
	}
	return all
}

func (c *crews) find(name string) *process {
	i := slices.IndexFunc(c.all, func(p *process) bool { return p.name == name })
	if i < 0 {
		return nil
	}
	return c.all[i]
}

// listen begins to receive the crews' messages.
func (c *crews) listen(path string) error {
	var err error
	if c.socket, err = net.Listen("unix", path); err != nil {
		return err
	}
	c.readers.Go(func() {
		for {
			conn, err := c.socket.Accept()
			if err != nil {
				return
			}
			c.readers.Go(func() { c.read(conn) })
		}
	})
	return nil
}

func (c *crews) close() {
	_ = c.socket.Close()
	c.readers.Wait()
}

func (c *crews) read(conn net.Conn) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	var p *process
	for lines.Scan() {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			c.fail(err)
			return
		}
		switch m.Kind {
		case hello:
			if p = c.find(m.Crew); p == nil {
				c.fail(fmt.Errorf("a crew calls itself %q", m.Crew))
				return
			}
			p.connect(conn)
			defer func() {
				if !p.leaving.Load() {
					c.fail(fmt.Errorf("%s has ended by itself: see %s.log", p.name, p.name))
				}
				p.disconnect()
			}()
		case begun, ended:
			if err := c.ledger.take(p.run(), m); err != nil {
				c.fail(err)
			}
		case answer:
			p.answered(m)
		default:
			c.mu.Lock()
			c.reads = append(c.reads, m)
			c.mu.Unlock()
		}
	}
}

func (c *crews) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = errors.Join(c.fault, err)
}

// err returns an error that no condition waits for.
func (c *crews) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

// told returns the messages of a kind since a time.
func (c *crews) told(k kind, since int64) []message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.reads), func(m message) bool { return m.Kind != k || m.At < since })
}

// run is the name of the current process, which the crew's next one does not have.
func (p *process) run() string { return fmt.Sprintf("%s/%d", p.name, p.starts) }

func (p *process) connect(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn = conn
	close(p.connected)
}

func (p *process) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conn = nil
	close(p.closed)
}

func (p *process) answered(m message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if to := p.answers[m.ID]; to != nil {
		to <- m.Status
		delete(p.answers, m.ID)
	}
}

// start starts a crew's process, and returns once it has connected.
func (c *crews) start(ctx context.Context, p *process) error {
	p.starts++
	p.leaving.Store(false)
	p.mu.Lock()
	p.connected, p.closed, p.answers = make(chan struct{}), make(chan struct{}), map[int64]chan status{}
	p.mu.Unlock()
	o := c.common
	o.Name, o.Members = p.name, p.members
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	p.Process, err = c.plane.StartProcess(p.name, c.nice, []string{"-n", crewNiceness, c.exe}, controlplane.WithEnv(crewVariable+"="+string(text)), controlplane.WithGrace(2*time.Minute))
	if err != nil {
		return err
	}
	select {
	case <-p.connected:
		return nil
	case <-p.Done():
		return fmt.Errorf("%s has ended at once: see %s", p.name, p.LogPath())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// kill sends SIGKILL to a crew, and returns when it was sent. By then all messages of the process
// have been read.
func (c *crews) kill(p *process) (sent int64, err error) {
	p.leaving.Store(true)
	sent = monotonic()
	err = p.Kill()
	at := monotonic()
	<-p.closed
	c.ledger.died(p.run(), at)
	return sent, err
}

// stop sends SIGTERM to a crew, and returns once all its members have left.
func (c *crews) stop(ctx context.Context, p *process) error {
	p.leaving.Store(true)
	if err := p.Stop(ctx); err != nil {
		return err
	}
	<-p.closed
	if err := p.Wait(); err != nil {
		return fmt.Errorf("%s: %w: see %s", p.name, err, p.LogPath())
	}
	return nil
}

// ask asks a crew for its status.
func (p *process) ask(ctx context.Context, q question) (status, error) {
	p.mu.Lock()
	p.asked++
	q.ID = p.asked
	to := make(chan status, 1)
	p.answers[q.ID] = to
	conn := p.conn
	p.mu.Unlock()
	if conn == nil {
		return status{}, fmt.Errorf("%s is not connected", p.name)
	}
	line, err := json.Marshal(q)
	if err != nil {
		return status{}, err
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return status{}, err
	}
	select {
	case s := <-to:
		return s, nil
	case <-p.closed:
		return status{}, fmt.Errorf("%s has ended: see %s", p.name, p.LogPath())
	case <-ctx.Done():
		return status{}, context.Cause(ctx)
	}
}

// up returns the running crews.
func (c *crews) up() []*process {
	return slices.DeleteFunc(slices.Clone(c.all), func(p *process) bool {
		if p.Process == nil {
			return true
		}
		select {
		case <-p.Done():
			return true
		default:
			return false
		}
	})
}

// ready returns nil once all members of all running crews are ready with a plan of this generation.
func (c *crews) ready(ctx context.Context, generation int64) error {
	for _, p := range c.up() {
		s, err := p.ask(ctx, question{})
		switch {
		case err != nil:
			return err
		case s.Ready < len(p.members):
			return fmt.Errorf("%s: %d of %d members are ready: %s", p.name, s.Ready, len(p.members), s.Missing)
		case s.Generation != generation:
			return fmt.Errorf("%s follows generation %d of the plan, not %d", p.name, s.Generation, generation)
		}
	}
	return nil
}

// executable returns the path of this program.
func executable() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(exe)
}

// usage is what a crew has used.
type usage struct {
	cpu    time.Duration
	memory measure.Memory
	status status
}

// usages returns what each running crew has used, by name.
func (c *crews) usages(ctx context.Context, collect bool) (map[string]usage, error) {
	found := map[string]usage{}
	for _, p := range c.up() {
		var u usage
		var err error
		if u.cpu, err = measure.CPU(p.Pid()); err != nil {
			return nil, err
		}
		if u.status, err = p.ask(ctx, question{Collect: collect}); err != nil {
			return nil, err
		}
		if u.memory, err = measure.MemoryOf(p.Pid()); err != nil {
			return nil, err
		}
		found[p.name] = u
	}
	return found, nil
}
