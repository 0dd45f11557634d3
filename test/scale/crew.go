package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// crew is a process with some members, as the process itself sees it.
type crew struct {
	name    string
	members []*member

	received, sent atomic.Int64

	mu   sync.Mutex
	conn net.Conn
}

// crewOptions are the environment of a crew's process.
type crewOptions struct {
	Name, Socket, Kubeconfig, Plan string
	Members                        []string
	Scrape                         time.Duration
	Slower                         int
}

// crewVariable has the crewOptions of a process that should be a crew.
const crewVariable = "FLOTILLA_SCALE_CREW"

// runCrew is a crew's process. On SIGTERM it ends after all its members have left.
func runCrew(text string) error {
	var o crewOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	document, err := os.ReadFile(o.Plan)
	if err != nil {
		return err
	}
	plan, err := shard.ParsePlan(document)
	if err != nil {
		return err
	}
	kube, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return err
	}
	c := &crew{name: o.Name}
	if c.conn, err = net.Dial("unix", o.Socket); err != nil {
		return err
	}
	defer c.conn.Close()
	c.send(message{Kind: hello, Crew: o.Name})
	for _, name := range o.Members {
		c.members = append(c.members, &member{crew: c, name: name, plan: plan, kube: kube, scrape: o.Scrape, timing: timing(o.Slower)})
	}
	go c.answer()
	var all sync.WaitGroup
	for _, m := range c.members {
		all.Go(func() {
			if err := m.run(ctx); err != nil {
				c.exit(err.Error())
			}
		})
	}
	all.Wait()
	return nil
}

// send sends a message in one system call: once it returns, the message arrives even if this
// process is killed.
func (c *crew) send(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.At = monotonic()
	line, err := json.Marshal(m)
	if err == nil {
		_, err = c.conn.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale: the run is over:", err)
		os.Exit(1)
	}
}

// exit ends the process as the product would.
func (c *crew) exit(reason string) {
	fmt.Fprintln(os.Stderr, "scale: the process ends itself:", reason)
	os.Exit(1)
}

// answer answers questions until the connection is closed.
func (c *crew) answer() {
	lines := bufio.NewScanner(c.conn)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			c.exit(err.Error())
		}
		if q.Collect {
			runtime.GC()
		}
		if q.Profile != "" {
			go profile(q.Profile, time.Duration(q.Seconds)*time.Second)
		}
		c.send(message{Kind: answer, ID: q.ID, Status: c.status()})
	}
}

func (c *crew) status() status {
	s := status{Heap: liveHeap(), Goroutines: runtime.NumGoroutine(), Received: c.received.Load(), Sent: c.sent.Load(), Generation: math.MaxInt64}
	var missing []string
	for _, m := range c.members {
		present := m.get()
		if present == nil {
			missing = append(missing, m.name+" does not run")
			continue
		}
		plan, _ := present.Plan()
		s.Generation = min(s.Generation, plan.Generation)
		if err := present.Complete(); err != nil {
			missing = append(missing, err.Error())
			continue
		}
		s.Ready++
	}
	if s.Missing = strings.Join(missing, "; "); len(s.Missing) > 300 {
		s.Missing = s.Missing[:300]
	}
	return s
}

func profile(name string, d time.Duration) {
	file, err := os.Create(name)
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale: no profile:", err)
		return
	}
	time.Sleep(d)
	pprof.StopCPUProfile()
	_ = file.Close()
}

// nameOf returns the name of the i-th namespace. The hashes of the names are evenly spread.
func nameOf(i int) string {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, i*7919)
	return fmt.Sprintf("ns-%016x", h.Sum64())
}
