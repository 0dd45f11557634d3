package cloud

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
)

// shardStub is an owner whose fence is opened and closed by hand.
type shardStub struct {
	name   string
	owned  atomic.Bool
	sent   atomic.Int32
	closed chan struct{}
	failed atomic.Pointer[error]
}

func newShard(owned bool) *shardStub {
	s := &shardStub{name: "namespaces/00", closed: make(chan struct{})}
	s.owned.Store(owned)
	return s
}

func (s *shardStub) String() string          { return s.name }
func (s *shardStub) Closed() <-chan struct{} { return s.closed }
func (s *shardStub) Fail(err error)          { s.failed.Store(&err) }

func (s *shardStub) WrapAPI(rt http.RoundTripper) http.RoundTripper { return s.Wrap(rt) }

func (s *shardStub) Wrap(rt http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if !s.owned.Load() {
			return nil, &fence.RefusedError{Shard: s.name}
		}
		s.sent.Add(1)
		return rt.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// runGuard runs a guard until the returned function is called, which returns once run has.
func runGuard(t *testing.T, g *guard) (stop context.CancelFunc, done <-chan struct{}) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := g.run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return stop, ended
}

func refused(t *testing.T, g *guard, when string) {
	t.Helper()
	if _, _, err := g.enter(t.Context()); !errors.Is(err, fence.ErrRefused) {
		t.Errorf("%s: a call begins, error %v", when, err)
	}
}

func TestCallsBeginOnlyWhileTheShardIsOwned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shard := newShard(true)
		g := &guard{shard: shard}
		refused(t, g, "before the shard is run")
		stop, done := runGuard(t, g)
		_, leave, err := g.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		leave()
		shard.owned.Store(false) // such as after a suspension: nobody has been told yet
		refused(t, g, "when the fence refuses")
		shard.owned.Store(true)
		stop()
		refused(t, g, "when the work is to end")
		<-done
		refused(t, g, "when the work has ended")
	})
}

// TestAFailureIsToldBeforeCallsReturn checks that a call that never returns does not hide that the
// controllers have failed.
func TestAFailureIsToldBeforeCallsReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shard := newShard(true)
		g := &guard{shard: shard}
		down, fail := errors.New("the controller is broken"), make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			ended <- g.run(t.Context(), func(context.Context) error { <-fail; return down })
		}()
		synctest.Wait()
		_, leave, err := g.enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		close(fail)
		synctest.Wait()
		if told := shard.failed.Load(); told == nil || !errors.Is(*told, down) {
			t.Error("the shard has not been told")
		}
		leave()
		if err := <-ended; !errors.Is(err, down) {
			t.Errorf("run returned %v", err)
		}
	})
}

func TestRunWaitsForCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shard := newShard(true)
		g := &guard{shard: shard}
		stop, done := runGuard(t, g)
		// As upstream: the context of the call is that of the controller, and ends with it.
		controller, end := context.WithCancel(t.Context())
		call, leave, err := g.enter(controller)
		if err != nil {
			t.Fatal(err)
		}
		stop()
		end()
		synctest.Wait()
		if call.Err() != nil {
			t.Error("the call is cut off although writes still pass")
		}
		select {
		case <-done:
			t.Fatal("run has returned during a call")
		default:
		}
		close(shard.closed)
		synctest.Wait()
		if cause := context.Cause(call); !errors.Is(cause, fence.ErrRefused) {
			t.Errorf("no write passes any more, and the call's context has %v", cause)
		}
		leave()
		<-done
	})
}

func TestACallEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guard{shard: newShard(true), value: "the shard"}
		stop, done := runGuard(t, g)
		caller, cancel := context.WithCancel(t.Context())
		call, leave, err := g.enter(caller)
		if err != nil {
			t.Fatal(err)
		}
		if call.Value(shardKey{}) != "the shard" {
			t.Error("the call's context does not name the shard")
		}
		cancel()
		synctest.Wait()
		if call.Err() == nil {
			t.Error("the call goes on although its caller has given it up")
		}
		leave()
		stop()
		<-done
	})
}

// TestACallKeepsItsCallersDeadline checks that a caller's own timeout ends a call, even once the
// shard's work is to end.
func TestACallKeepsItsCallersDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guard{shard: newShard(true)}
		stop, done := runGuard(t, g)
		caller, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		call, leave, err := g.enter(caller)
		if err != nil {
			t.Fatal(err)
		}
		if deadline, has := call.Deadline(); !has || time.Until(deadline) != time.Minute {
			t.Errorf("the call's deadline is in %v, want the caller's", time.Until(deadline))
		}
		stop()
		time.Sleep(time.Minute - 1) // virtual
		if call.Err() != nil {
			t.Error("the call is cut off before its time")
		}
		time.Sleep(time.Nanosecond) // virtual
		synctest.Wait()
		if !errors.Is(call.Err(), context.DeadlineExceeded) {
			t.Errorf("after the caller's deadline the call's context has %v", call.Err())
		}
		leave()
		<-done
	})
}

func TestTheContextOfACallEndsWhenTheCallReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guard{shard: newShard(true)}
		stop, done := runGuard(t, g)
		var kept context.Context
		if err := do(t.Context(), g, "test", func(call context.Context) error {
			kept = call
			return call.Err()
		}); err != nil {
			t.Error(err)
		}
		if kept.Err() == nil {
			t.Error("the context goes on after the call")
		}
		stop()
		<-done
	})
}

// TestEveryCallIsGuarded calls each method of each part of a cloud while nothing may begin. The
// parts panic when they are reached.
func TestEveryCallIsGuarded(t *testing.T) {
	g := guarded{cloud: parts{}, guard: &guard{shard: newShard(false)}}
	free := []string{"GetLoadBalancerName"} // a computation, which cannot return an error
	calls := 0
	for _, accessor := range []string{
		"LoadBalancer", "Instances", "InstancesV2", "Zones", "Clusters", "Routes",
	} {
		part := reflect.ValueOf(g).MethodByName(accessor).Call(nil)[0].Elem()
		wanted := reflect.TypeFor[cloudprovider.Interface]()
		method, _ := wanted.MethodByName(accessor)
		for i := range method.Type.Out(0).NumMethod() {
			name := method.Type.Out(0).Method(i).Name
			if slices.Contains(free, name) {
				continue
			}
			f := part.MethodByName(name)
			var in []reflect.Value
			for n := range f.Type().NumIn() {
				in = append(in, reflect.Zero(f.Type().In(n)))
			}
			in[0] = reflect.ValueOf(t.Context())
			out := f.Call(in)
			if err, _ := out[len(out)-1].Interface().(error); !errors.Is(err, fence.ErrRefused) {
				t.Errorf("%s of %s is not guarded: error %v", name, accessor, err)
			}
			calls++
		}
	}
	if calls < 20 {
		t.Errorf("only %d methods were called", calls)
	}
}

// parts is a cloud that has all parts, none of which can be used.
type parts struct{}

func (parts) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (parts) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return nil, true }
func (parts) Instances() (cloudprovider.Instances, bool)                        { return nil, true }
func (parts) InstancesV2() (cloudprovider.InstancesV2, bool)                    { return nil, true }
func (parts) Zones() (cloudprovider.Zones, bool)                                { return noZones{}, true }
func (parts) Clusters() (cloudprovider.Clusters, bool) {
	return noClusters{}, true
}
func (parts) Routes() (cloudprovider.Routes, bool) { return nil, true }
func (parts) ProviderName() string                 { return "parts" }
func (parts) HasClusterID() bool                   { return true }

// noZones and noClusters have methods whose values guarded takes before the guard is asked.
type (
	noZones    struct{ cloudprovider.Zones }
	noClusters struct{ cloudprovider.Clusters }
)

func (noZones) GetZone(context.Context) (cloudprovider.Zone, error) { panic("reached") }

func (noClusters) ListClusters(context.Context) ([]string, error) { panic("reached") }

func TestErrorsOfTheCloudAreHandedOnAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &guard{shard: newShard(true)}
		stop, done := runGuard(t, g)
		balancer := guardedBalancer{elsewhere{}, g}
		if _, err := balancer.EnsureLoadBalancer(
			t.Context(), "", &v1.Service{}, nil,
		); err != cloudprovider.ImplementedElsewhere {
			t.Errorf("got %v, which upstream does not recognize", err)
		}
		stop()
		<-done
	})
}

type elsewhere struct{ cloudprovider.LoadBalancer }

func (elsewhere) EnsureLoadBalancer(
	context.Context, string, *v1.Service, []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	return nil, cloudprovider.ImplementedElsewhere
}
