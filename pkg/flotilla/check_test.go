package flotilla

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/election/fence"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// sends returns a Build whose controller sends the requests, and then reports that it has.
func sends(sent chan<- *Shard, requests func(*Shard) []string) Build {
	return func(_ context.Context, s *Shard) (Runnable, error) {
		client, err := rest.HTTPClientFor(s.Config())
		if err != nil {
			return nil, err
		}
		return RunnableFunc(func(ctx context.Context) error {
			for _, r := range requests(s) {
				if err := send(ctx, client, r); err != nil {
					return err
				}
			}
			sent <- s
			<-ctx.Done()
			return nil
		}), nil
	}
}

// send sends a request such as "GET /api/v1/pods".
func send(ctx context.Context, client *http.Client, request string) error {
	method, path, _ := strings.Cut(request, " ")
	req, err := http.NewRequestWithContext(ctx, method, "https://127.0.0.1:1"+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// halvesOf returns a namespace of each half.
func halvesOf(t *testing.T) (names [2]string) {
	t.Helper()
	ranges, err := shard.EqualRanges(2)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		name := fmt.Sprintf("%d-team", i)
		for half, r := range ranges {
			if r.ContainsNamespace(name) {
				names[half] = name
			}
		}
	}
	if names[0] == "" || names[1] == "" {
		t.Fatal("all names lie in one half")
	}
	return names
}

// checked returns a fleet whose API server answers every request with an empty object.
func checked(t *testing.T, build Build, change ...func(*Options)) *Fleet {
	t.Helper()
	return checkedAt(t, "https://127.0.0.1:1", build, change...)
}

// checkedAt is checked with the address of the API server.
func checkedAt(t *testing.T, host string, build Build, change ...func(*Options)) *Fleet {
	t.Helper()
	f := newFleetAt(t, host, func(o *Options) {
		o.HandoffTimeout = time.Hour // Controllers return, however slow the machine is.
		for _, c := range change {
			c(o)
		}
	})
	f.config.Transport = answers{}
	f.Namespaced("issuer", build)
	return f
}

// TestCheckReportsWhatIsOutside has a controller in each half send requests to both halves.
func TestCheckReportsWhatIsOutside(t *testing.T) {
	names := halvesOf(t)
	sent := make(chan *Shard)
	told := make(chan Access, 100)
	f := checked(t, sends(sent, func(s *Shard) []string {
		if !s.Owns(names[0]) { // the second half stays within its range
			return []string{"PUT /api/v1/namespaces/" + names[1] + "/configmaps/a"}
		}
		foreign := "/api/v1/namespaces/" + names[1]
		return []string{
			"GET " + foreign + "/secrets/a", "GET " + foreign + "/secrets/b",
			"GET " + foreign + "/secrets", "GET " + foreign + "/secrets?watch=1",
			"POST " + foreign + "/configmaps", "DELETE " + foreign + "/configmaps",
			"PATCH " + foreign + "/pods/a/status", "PUT " + foreign + "/finalize",
			"GET /api/v1/namespaces/" + names[0] + "/secrets",
			"POST /api/v1/namespaces/" + names[0] + "/configmaps", "GET /version",
			"POST /apis/events.k8s.io/v1/namespaces/default/events",
		}
	}), func(o *Options) { o.Outside = func(a Access) { told <- a } })
	f.Singleton("webhook-ca", sends(sent, func(*Shard) []string {
		return []string{"PUT /api/v1/namespaces/" + names[0] + "/configmaps/a"}
	}))
	report, err := f.Check(t.Context(), func(ctx context.Context) error {
		for range 3 {
			select {
			case <-sent:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Idle) != 0 {
		t.Errorf("idle are %v, want none", report.Idle)
	}
	var got []string
	for _, f := range report.Findings {
		of, _, _ := strings.Cut(f.String(), ", in ")
		got = append(got, of)
		inTest := strings.HasPrefix(f.Caller, "TestCheck")
		if !strings.HasPrefix(f.Caller, "send (check_test.go:") && !inTest {
			t.Errorf("%s was made by %q, want the test", of, f.Caller)
		}
		if f.Shard.Name != "00" || f.Namespace != names[1] || f.Informer || f.ClusterScoped {
			t.Errorf("%s is %+v", of, f)
		}
	}
	where := " in namespace " + names[1] + ", "
	want := []string{
		"issuer: create configmaps" + where + "once",
		"issuer: deletecollection configmaps" + where + "once",
		"issuer: patch pods/status" + where + "once",
		"issuer: update namespaces/finalize" + where + "once",
		"issuer: get secrets" + where + "2 times",
		"issuer: list secrets" + where + "once",
		"issuer: watch secrets" + where + "once",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(told) < 8 {
		t.Errorf("Options.Outside received %d requests, want all", len(told))
	}
	if report.Err(nil) == nil || report.Err(func(f Finding) bool { return !f.Writes() }) == nil {
		t.Error("the report accepts writes outside the range")
	}
	if err := report.Err(func(Finding) bool { return true }); err != nil {
		t.Errorf("everything is allowed, but the error is %v", err)
	}
}

// TestCheckEndsWhereAFleetEndsTheProcess has a controller that hangs beside one that fails.
func TestCheckEndsWhereAFleetEndsTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		f := checked(t, func(context.Context, *Shard) (Runnable, error) {
			return RunnableFunc(func(context.Context) error { <-free; return nil }), nil
		}, func(o *Options) {
			o.Clock = clock.RealClock{}
			o.Exit = func(reason string) { t.Errorf("the process was ended: %s", reason) }
		})
		f.Namespaced("broken", func(context.Context, *Shard) (Runnable, error) {
			return RunnableFunc(func(context.Context) error { return errors.New("no cloud") }), nil
		})
		_, err := f.Check(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
		if err == nil || !strings.Contains(err.Error(), "no cloud") || !strings.Contains(err.Error(), "not returned: issuer") {
			t.Errorf("the error is %v, want that of one controller and the name of the other", err)
		}
		close(free)
	})
}

func TestCheckNamesTheHalfThatHasDoneNothing(t *testing.T) {
	sent := make(chan *Shard)
	f := checked(t, sends(sent, func(s *Shard) []string {
		if s.ID().Name == "01" {
			return nil
		}
		return []string{"PUT /api/v1/namespaces/" + halvesOf(t)[0] + "/configmaps/a"}
	}))
	report, err := f.Check(t.Context(), func(context.Context) error { <-sent; <-sent; return nil })
	if err != nil {
		t.Fatal(err)
	}
	want := []shard.ID{{Ring: NamespacesRing, Name: "01"}}
	if !slices.Equal(report.Idle, want) || report.Err(nil) == nil {
		t.Errorf("idle are %v, %v; want %v", report.Idle, report.Err(nil), want)
	}
}

// TestCheckJudgesAHalfByItsOwnWork has the controllers of the second half send one request each,
// and those of the first do something in theirs.
func TestCheckJudgesAHalfByItsOwnWork(t *testing.T) {
	names := halvesOf(t)
	ofDefault := "00"
	if halves, err := shard.EqualRanges(2); err != nil || halves[1].ContainsNamespace("default") {
		ofDefault = "01"
	}
	for _, serverPath := range []string{"", "/api/clusters/c-1"} {
		for request, works := range map[string]bool{
			"PUT /api/v1/namespaces/MINE/configmaps/a":                 true,
			"POST /api/v1/namespaces/MINE/events":                      true,
			"PATCH /api/v1/namespaces/MINE":                            true,
			"GET /api/v1/namespaces/MINE/pods/a/exec":                  true,
			"PUT /api/v1/namespaces/default/configmaps/a":              true,
			"GET /api/v1/namespaces/MINE/configmaps/a":                 false,
			"PUT /api/v1/namespaces/FOREIGN/configmaps/a":              false,
			"PATCH /api/v1/nodes/a":                                    false,
			"POST /api/v1/namespaces":                                  false,
			"POST /apis/authorization.k8s.io/v1/localreviews/a":        false,
			"POST /api/v1/namespaces/default/events":                   false,
			"PATCH /apis/events.k8s.io/v1/namespaces/default/events/a": false,
			"POST /healthz": false,
		} {
			judged, mine, foreign := "01", names[1], names[0]
			if strings.Contains(request, "/default/") && ofDefault == "00" {
				judged, mine, foreign = "00", names[0], names[1]
			}
			sent := make(chan *Shard)
			f := checkedAt(t, "https://127.0.0.1:1"+serverPath, sends(sent, func(s *Shard) []string {
				if s.ID().Name != judged {
					return []string{"PUT " + serverPath + "/api/v1/namespaces/" + foreign + "/configmaps/a"}
				}
				method, path, _ := strings.Cut(strings.NewReplacer("MINE", mine, "FOREIGN", foreign).Replace(request), " ")
				return []string{method + " " + serverPath + path}
			}))
			report, err := f.Check(t.Context(), func(context.Context) error { <-sent; <-sent; return nil })
			if err != nil {
				t.Fatal(err)
			}
			var want []shard.ID
			if !works {
				want = []shard.ID{{Ring: NamespacesRing, Name: judged}}
			}
			if !slices.Equal(report.Idle, want) {
				t.Errorf("%s to %q: idle are %v, want %v", request, serverPath, report.Idle, want)
			}
		}
	}
}

// TestCheckTakesForeignWritesForWork has the controllers of one half write to a cloud, and those of
// the other read from it.
func TestCheckTakesForeignWritesForWork(t *testing.T) {
	sent := make(chan struct{})
	f := checked(t, func(_ context.Context, s *Shard) (Runnable, error) {
		client := &http.Client{Transport: s.Wrap(answers{})}
		return RunnableFunc(func(ctx context.Context) error {
			request := "GET /api/v1/namespaces/a/services"
			if s.ID().Name == "00" {
				request = "POST /api/v1/namespaces/a/services"
			}
			err := send(ctx, client, request)
			sent <- struct{}{}
			<-ctx.Done()
			return err
		}), nil
	})
	report, err := f.Check(t.Context(), func(context.Context) error { <-sent; <-sent; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if want := []shard.ID{{Ring: NamespacesRing, Name: "01"}}; !slices.Equal(report.Idle, want) {
		t.Errorf("idle are %v, want %v", report.Idle, want)
	}
}

// TestCheckRefusesWritesBeforeTheShardIsOwned uses a Build that writes, or connects to a pod.
func TestCheckRefusesWritesBeforeTheShardIsOwned(t *testing.T) {
	for _, serverPath := range []string{"", "/api/clusters/c-1"} {
		for _, request := range []string{"POST /api/v1/namespaces/a/configmaps", "GET /api/v1/namespaces/a/pods/b/exec"} {
			f := checkedAt(t, "https://127.0.0.1:1"+serverPath, func(ctx context.Context, s *Shard) (Runnable, error) {
				client, err := rest.HTTPClientFor(s.Config())
				if err != nil {
					return nil, err
				}
				if s.Term() != 0 {
					t.Error("Term is not 0 before the shard is owned")
				}
				method, path, _ := strings.Cut(request, " ")
				return nil, send(ctx, client, method+" "+serverPath+path)
			})
			report, err := f.Check(t.Context(), func(context.Context) error {
				t.Error("work was called")
				return nil
			})
			if !errors.Is(err, fence.ErrRefused) || report != nil {
				t.Errorf("%s: the report is %v and the error %v, want it refused", request, report, err)
			}
		}
	}
}

// TestCheckEndsIfWorkDoesNotReturn uses work that ends its goroutine, as t.Fatal does, or panics.
func TestCheckEndsIfWorkDoesNotReturn(t *testing.T) {
	for how, leave := range map[string]func(){
		"Goexit": runtime.Goexit, "panic": func() { panic("no") },
	} {
		built := make(chan *Shard, 2)
		var returned atomic.Int32
		f := checked(t, func(_ context.Context, s *Shard) (Runnable, error) {
			built <- s
			return RunnableFunc(func(ctx context.Context) error {
				<-ctx.Done()
				returned.Add(1)
				return nil
			}), nil
		})
		left := make(chan struct{})
		go func() {
			defer close(left)
			defer func() { _ = recover() }()
			_, _ = f.Check(t.Context(), func(context.Context) error { leave(); return nil })
			t.Errorf("%s: Check has returned", how)
		}()
		<-left
		if n := returned.Load(); n != 2 {
			t.Errorf("%s: %d controllers have returned, want both", how, n)
		}
		for range 2 {
			s := <-built
			if s.Term() != 0 {
				t.Errorf("%s: writes of %v still pass", how, s)
			}
			select {
			case <-s.Closed():
			default:
				t.Errorf("%s: %v is not closed", how, s)
			}
		}
	}
}

// closable is a Runnable that records that it was closed.
type closable struct {
	RunnableFunc
	closed *atomic.Int32
}

func (c closable) Close() { c.closed.Add(1) }

// TestCheckEndsIfABuildDoesNotReturn makes the second controller of the second half end its
// goroutine, as t.Fatal does, or panic. Everything that was built before must be closed, and so
// must both halves.
func TestCheckEndsIfABuildDoesNotReturn(t *testing.T) {
	for how, leave := range map[string]func(){
		"Goexit": runtime.Goexit, "panic": func() { panic("no") },
	} {
		var built, closed atomic.Int32
		shards := make(chan *Shard, 2)
		f := checked(t, func(_ context.Context, s *Shard) (Runnable, error) {
			built.Add(1)
			shards <- s
			return closable{func(context.Context) error { return nil }, &closed}, nil
		})
		var seconds atomic.Int32
		f.Namespaced("second", func(context.Context, *Shard) (Runnable, error) {
			if seconds.Add(1) == 2 {
				leave()
			}
			return RunnableFunc(func(context.Context) error { return nil }), nil
		})
		left := make(chan struct{})
		go func() {
			defer close(left)
			defer func() { _ = recover() }()
			_, _ = f.Check(t.Context(), nil)
			t.Errorf("%s: Check has returned", how)
		}()
		<-left
		if built.Load() != 2 || closed.Load() != 2 {
			t.Errorf("%s: %d runnables of %d are closed, want 2 of 2", how, closed.Load(), built.Load())
		}
		for range built.Load() {
			select {
			case <-(<-shards).Closed():
			default:
				t.Errorf("%s: a half is not closed", how)
			}
		}
	}
}

// hangs is a transport that answers writes only when their contexts end.
type hangs struct{ sent chan struct{} }

func (h hangs) RoundTrip(req *http.Request) (*http.Response, error) {
	if fence.IsRead(req.Method) {
		return answers{}.RoundTrip(req)
	}
	h.sent <- struct{}{}
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// TestCheckCutsOffWrites uses a controller that goes on writing when it should have returned.
func TestCheckCutsOffWrites(t *testing.T) {
	sent, outcomes := make(chan struct{}), make(chan error, 2)
	names := halvesOf(t)
	f := checked(t, func(_ context.Context, s *Shard) (Runnable, error) {
		client, err := rest.HTTPClientFor(s.Config())
		return RunnableFunc(func(ctx context.Context) error {
			request := "PUT /api/v1/namespaces/" + names[0] + "/configmaps/a"
			if !s.Owns(names[0]) {
				request = "PUT /api/v1/namespaces/" + names[1] + "/configmaps/a"
			}
			outcomes <- send(context.WithoutCancel(ctx), client, request)
			return nil
		}), err
	}, func(o *Options) { o.HandoffTimeout = time.Millisecond })
	f.config.Transport = hangs{sent}
	report, err := f.Check(t.Context(), func(context.Context) error { <-sent; <-sent; return nil })
	if report == nil || len(report.Idle) > 0 {
		t.Errorf("the report is %+v and the error %v", report, err)
	}
	for range 2 {
		if err := <-outcomes; !errors.Is(err, fence.ErrRefused) {
			t.Errorf("a write under way ended with %v", err)
		}
	}
}

// TestCheckSeesReading has a controller read foreign objects through the configuration for
// informers.
func TestCheckSeesReading(t *testing.T) {
	names, sent := halvesOf(t), make(chan *Shard)
	f := checked(t, func(_ context.Context, s *Shard) (Runnable, error) {
		client, err := rest.HTTPClientFor(s.Reading())
		return RunnableFunc(func(ctx context.Context) error {
			err := send(ctx, client, "GET /api/v1/namespaces/"+names[0]+"/secrets/a")
			sent <- s
			<-ctx.Done()
			return err
		}), err
	})
	report, err := f.Check(t.Context(), func(context.Context) error { <-sent; <-sent; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Findings) != 1 || report.Findings[0].Count != 1 || report.Findings[0].Verb != "get" {
		t.Errorf("found %v, want the read from the other half", report.Findings)
	}
}

// TestCheckNamesWhatDoesNotReturn uses a controller that does not end with its context.
func TestCheckNamesWhatDoesNotReturn(t *testing.T) {
	release := make(chan struct{})
	closed := make(chan (<-chan struct{}), 2)
	f := checked(t, func(_ context.Context, s *Shard) (Runnable, error) {
		closed <- s.Closed()
		return RunnableFunc(func(context.Context) error { <-release; return nil }), nil
	}, func(o *Options) { o.HandoffTimeout = time.Millisecond })
	report, err := f.Check(t.Context(), func(context.Context) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "namespaces/00 has not returned 1ms") ||
		!strings.Contains(err.Error(), "issuer") || report == nil {
		t.Errorf("the report is %v and the error %v", report, err)
	}
	<-<-closed
	close(release)
}

// TestCheckEndsWithTheControllers uses a controller that fails, and a fleet without controllers.
func TestCheckEndsWithTheControllers(t *testing.T) {
	failed := errors.New("no cloud")
	f := checked(t, func(context.Context, *Shard) (Runnable, error) {
		return RunnableFunc(func(context.Context) error { return failed }), nil
	})
	_, err := f.Check(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, failed) {
		t.Errorf("the error is %v, want the controller's", err)
	}
	if _, err := newFleet(t, nil).Check(t.Context(), nil); err == nil {
		t.Error("no error without controllers")
	}
	if err := f.Ready(); !errors.Is(err, errNotRun) {
		t.Errorf("after a check the error is %v", err)
	}
}

// TestReportsPointToSectionsOfTheGuide checks that the sections exist.
func TestReportsPointToSectionsOfTheGuide(t *testing.T) {
	guide, err := os.ReadFile("../../docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	headings := regexp.MustCompile(`(?m)^#+ (.*)$`)
	for _, heading := range headings.FindAllStringSubmatch(string(guide), -1) {
		anchor := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		sections["docs/library.md#"+strings.ReplaceAll(anchor, " ", "-")] = true
	}
	for _, link := range []string{musts, steps, holds} {
		if !sections[link] {
			t.Errorf("%s: no such section, only %v", link, sections)
		}
	}
}

func TestVerbs(t *testing.T) {
	for request, want := range map[string]string{
		"GET /api/v1/namespaces/a":                                           "get namespaces",
		"GET /api/v1/namespaces?watch=true":                                  "watch namespaces",
		"PUT /api/v1/namespaces/a/status":                                    "update namespaces/status",
		"GET /apis/apps/v1/namespaces/a/deployments":                         "list deployments",
		"DELETE /apis/apps/v1/namespaces/a/things":                           "deletecollection things",
		"DELETE /apis/apps/v1/namespaces/a/deployments/b":                    "delete deployments",
		"POST /api/v1/namespaces/a/pods/b/eviction":                          "create pods/eviction",
		"PATCH /apis/example.com/v1/things/b":                                "patch things",
		"PUT /apis/rbac.authorization.k8s.io/v1/namespaces/a/rolebindings/b": "update rolebindings",
		"GET /api/v1/namespaces/a/pods?watch=0":                              "list pods",
		"GET /apis/apps/v1/namespaces/a/deployments/b?watch=1":               "get deployments",
		"HEAD /apis/apps/v1/namespaces/a/deployments/b/status?":              "get deployments/status",
	} {
		method, path, _ := strings.Cut(request, " ")
		url := "https://127.0.0.1:1" + path
		req, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		of, _ := targetOf(req.URL.Path)
		got := of.verb(req) + " " + of.resource.Resource
		if of.subresource != "" {
			got += "/" + of.subresource
		}
		if got != want {
			t.Errorf("%s is %s, want %s", request, got, want)
		}
	}
}
