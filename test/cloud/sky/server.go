package sky

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// RetryAfter is the header with the milliseconds to wait before the next try.
	RetryAfter = "Retry-After-Ms"

	tooMany = http.StatusTooManyRequests

	// Addresses of load balancers are 127.X.0.1 and up, where X differs between processes on one
	// machine.
	firstNet, nets = 64, 128
	mostAddresses  = 1 << 16
)

// Limit bounds requests per second and at once. The zero Limit does not limit.
type Limit struct {
	PerSecond float64
	Burst     int
}

func (l Limit) limiter() *rate.Limiter {
	if l == (Limit{}) {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(l.PerSecond), l.Burst)
}

// Options say how the cloud behaves.
type Options struct {
	// PerClient limits the requests of each client, Global those of all. Default: no limit.
	PerClient, Global Limit
	// ReadLatency and WriteLatency are how long a request takes. Default: no added latency.
	ReadLatency, WriteLatency time.Duration
}

// Server is a running cloud. Its methods may be called concurrently.
type Server struct {
	options Options
	http    *http.Server
	url     string
	global  *rate.Limiter
	// ctx ends with Close.
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu        sync.Mutex
	clients   map[string]*rate.Limiter
	calls     []*Call
	balancers map[string]*balancer
	instances map[string]Instance
	routes    map[string]Route
	blocks    map[*block]struct{}
	last      int // Number of the last object made.
	address   int // Of the last load balancer.
	limited   int // Requests that were above a limit.
}

// Start starts a cloud on a free port.
func Start(options Options) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{
		options: options, url: "http://" + l.Addr().String(), global: options.Global.limiter(),
		ctx: ctx, stop: stop,
		clients: map[string]*rate.Limiter{}, balancers: map[string]*balancer{},
		instances: map[string]Instance{},
		routes:    map[string]Route{}, blocks: map[*block]struct{}{},
	}
	s.http = &http.Server{Handler: s.handler()}
	s.work.Go(func() { _ = s.http.Serve(l) })
	return s, nil
}

// Close ends the cloud and all load balancers.
func (s *Server) Close() {
	s.stop()
	_ = s.http.Close()
	s.work.Wait()
	s.mu.Lock()
	balancers := slices.Collect(maps.Values(s.balancers))
	s.mu.Unlock()
	for _, b := range balancers {
		b.close()
	}
}

// URL returns the API's address.
func (s *Server) URL() string { return s.url }

// AddInstance adds a machine and returns its ID.
func (s *Server) AddInstance(i Instance) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	i.ID = s.newID("i")
	s.instances[i.ID] = i
	return i.ID
}

// RemoveInstance removes a machine.
func (s *Server) RemoveInstance(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.instances, id)
}

// LoadBalancers returns the existing load balancers.
func (s *Server) LoadBalancers() []LoadBalancer {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []LoadBalancer
	for _, id := range slices.Sorted(maps.Keys(s.balancers)) {
		all = append(all, s.balancers[id].state())
	}
	return all
}

// Routes returns the existing routes.
func (s *Server) Routes() []Route {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.routes))
}

// Calls returns the log so far, without requests above a limit.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := make([]Call, len(s.calls))
	for i, c := range s.calls {
		calls[i] = *c
	}
	return calls
}

// Limited returns how many requests were above a limit.
func (s *Server) Limited() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limited
}

// block holds back the answers to some calls.
type block struct {
	match   func(Call) bool
	blocked chan Call
	release chan struct{}
}

// Block holds back the answers to matching calls until unblock is called. Such a call has taken
// effect by then. blocked receives the first one.
func (s *Server) Block(match func(Call) bool) (blocked <-chan Call, unblock func()) {
	b := &block{match: match, blocked: make(chan Call, 1), release: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blocks[b] = struct{}{}
	return b.blocked, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.blocks, b)
		close(b.release)
	})
}

// wait waits while the call is blocked.
func (s *Server) wait(call *Call) {
	s.mu.Lock()
	copied := *call
	blocks := slices.Collect(maps.Keys(s.blocks))
	s.mu.Unlock()
	for _, b := range blocks {
		if !b.match(copied) {
			continue
		}
		select {
		case b.blocked <- copied:
		default:
		}
		select {
		case <-b.release:
		case <-s.ctx.Done():
		}
	}
}

func (s *Server) newID(kind string) string {
	s.last++
	return fmt.Sprintf("%s-%d", kind, s.last)
}

// operation carries out a request. serve calls it with the server's lock held, after the request's
// latency has passed.
type operation func(r *http.Request, call *Call) (any, error)

func (s *Server) handler() http.Handler {
	m := http.NewServeMux()
	handle := func(pattern string, f operation) {
		m.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, f) })
	}
	handle("GET /v1/loadbalancers", s.listBalancers)
	handle("POST /v1/loadbalancers", s.createBalancer)
	handle("PUT /v1/loadbalancers/{id}", s.changeBalancer)
	handle("DELETE /v1/loadbalancers/{id}", s.deleteBalancer)
	handle("GET /v1/instances", s.listInstances)
	handle("GET /v1/routes", s.listRoutes)
	handle("POST /v1/routes", s.createRoute)
	handle("DELETE /v1/routes/{id}", s.deleteRoute)
	return m
}

// serve does what all requests have in common: it identifies the client, applies limits and
// latency, and writes the log.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, f operation) {
	client, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !is || client == "" {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	if after := s.overLimit(client); after > 0 {
		w.Header().Set(RetryAfter, strconv.FormatInt(after.Milliseconds()+1, 10))
		http.Error(w, "slow down", tooMany)
		return
	}
	call := &Call{
		Client: client, Method: r.Method, Path: r.URL.Path, UID: r.Header.Get(ServiceHeader),
		Begin: time.Now(),
	}
	call.identify(r.UserAgent())
	s.mu.Lock()
	s.calls = append(s.calls, call)
	s.mu.Unlock()
	latency := s.options.ReadLatency
	if call.Writes() {
		latency = s.options.WriteLatency
	}
	s.pass(latency)
	answer, err := s.carryOut(r, call, f)
	status := http.StatusOK
	switch {
	case errors.Is(err, errNotFound):
		status = http.StatusNotFound
	case err != nil:
		status = http.StatusInternalServerError
	}
	s.mu.Lock()
	call.End, call.Status = time.Now(), status
	s.mu.Unlock()
	s.wait(call)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// ServiceHeader carries the UID of the Service that a request is about.
const ServiceHeader = "X-Service-Uid"

// pass lets time pass. A request goes on when its client hangs up.
func (s *Server) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	}
}

func (s *Server) carryOut(r *http.Request, call *Call, f operation) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, err := f(r, call)
	if err == nil && call.Writes() {
		call.Effect = time.Now()
	}
	return answer, err
}

// overLimit returns how long to wait before the next try, or 0 for a request within the limits.
func (s *Server) overLimit(client string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.clients[client]
	if own == nil {
		own = s.options.PerClient.limiter()
		s.clients[client] = own
	}
	now := time.Now()
	first := own.ReserveN(now, 1)
	if after := first.DelayFrom(now); after > 0 {
		first.CancelAt(now)
		s.limited++
		return after
	}
	second := s.global.ReserveN(now, 1)
	if after := second.DelayFrom(now); after > 0 {
		second.CancelAt(now)
		first.CancelAt(now)
		s.limited++
		return after
	}
	return 0
}

var errNotFound = errors.New("not found")

func (s *Server) listBalancers(r *http.Request, _ *Call) (any, error) {
	all := []LoadBalancer{}
	uid := r.URL.Query().Get("uid")
	for _, id := range slices.Sorted(maps.Keys(s.balancers)) {
		if is := s.balancers[id].state(); is.UID == uid {
			all = append(all, is)
		}
	}
	return all, nil
}

func (s *Server) createBalancer(r *http.Request, call *Call) (any, error) {
	var is LoadBalancer
	if err := json.NewDecoder(r.Body).Decode(&is); err != nil {
		return nil, err
	}
	is.ID = s.newID("lb")
	for range mostAddresses {
		s.address++
		is.Address = fmt.Sprintf(
			"127.%d.%d.%d", firstNet+os.Getpid()%nets, s.address>>8&0xff, s.address&0xff,
		)
		b, err := listen(is)
		if err != nil {
			continue // Another process uses it.
		}
		s.balancers[is.ID] = b
		call.Balancer = is.ID
		return is, nil
	}
	return nil, errNoAddress
}

func (s *Server) changeBalancer(r *http.Request, call *Call) (any, error) {
	b, is := s.balancers[r.PathValue("id")]
	if !is {
		return nil, errNotFound
	}
	var want LoadBalancer
	if err := json.NewDecoder(r.Body).Decode(&want); err != nil {
		return nil, err
	}
	b.change(want.Backends)
	call.Balancer = r.PathValue("id")
	return b.state(), nil
}

func (s *Server) deleteBalancer(r *http.Request, call *Call) (any, error) {
	id := r.PathValue("id")
	b, is := s.balancers[id]
	if !is {
		return nil, errNotFound
	}
	delete(s.balancers, id)
	b.close()
	call.Balancer = id
	return struct{}{}, nil
}

func (s *Server) listInstances(r *http.Request, _ *Call) (any, error) {
	all := []Instance{}
	id, name := r.URL.Query().Get("id"), r.URL.Query().Get("name")
	for _, i := range s.instances {
		if id == i.ID || id == "" && name == i.Name {
			all = append(all, i)
		}
	}
	return all, nil
}

func (s *Server) listRoutes(r *http.Request, _ *Call) (any, error) {
	all := []Route{}
	for _, route := range s.routes {
		if route.Cluster == r.URL.Query().Get("cluster") {
			all = append(all, route)
		}
	}
	return all, nil
}

func (s *Server) createRoute(r *http.Request, _ *Call) (any, error) {
	var route Route
	if err := json.NewDecoder(r.Body).Decode(&route); err != nil {
		return nil, err
	}
	route.ID = s.newID("r")
	s.routes[route.ID] = route
	return route, nil
}

func (s *Server) deleteRoute(r *http.Request, _ *Call) (any, error) {
	id := r.PathValue("id")
	if _, is := s.routes[id]; !is {
		return nil, errNotFound
	}
	delete(s.routes, id)
	return struct{}{}, nil
}
