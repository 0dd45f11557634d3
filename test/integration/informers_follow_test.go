package integration

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// joinGroup starts informers of everything in the process, as a group of cluster-scoped controllers
// has.
func (p *process) joinGroup(t testing.TB, read []subject) *shardCaches {
	t.Helper()
	return p.join(t, shard.Everything(), read)
}

// join starts informers of a range in the process.
func (p *process) join(t testing.TB, r shard.Range, read []subject) *shardCaches {
	t.Helper()
	c := &shardCaches{within: r, factory: p.pool.NewFactory(r, scopeOfCustom), read: map[schema.GroupVersionResource]*readBy{}}
	t.Cleanup(c.factory.Shutdown)
	for _, s := range read {
		c.ask(t, s)
	}
	c.factory.StartWithContext(context.WithoutCancel(t.Context()))
	return c
}

// checkFollows waits until each resource has this many watches and followers.
func (p *process) checkFollows(t testing.TB, read []subject, watches, follow int) {
	t.Helper()
	for _, s := range read {
		if !s.namespaced {
			continue
		}
		eventually(t, func() error {
			if w, f := p.wire.watches(s.gvr.Resource), p.pool.Followed()[s.gvr]; w != watches || f != follow {
				return fmt.Errorf("%s: %d watches and %d followers, want %d and %d", s.gvr.Resource, w, f, watches, follow)
			}
			return nil
		})
	}
}

// TestRangesFollowAGroup lets a group join a process with ranges, leave it and come back, while
// objects of all kinds change and watches are cut or expire.
func TestRangesFollowAGroup(t *testing.T) {
	random := newRandom(t)
	defineCustomResources(t, plane.AdminConfig())
	m := newMutator(t, random, plane.AdminConfig())
	m.populate(12)
	c := &comparison{t: t, random: random, mutator: m, unfiltered: startUnfiltered(t, plane.AdminConfig())}
	p := startProcess(t, "process", plane.AdminConfig(), nil, nil)
	group := p.joinGroup(t, subjects)
	for _, r := range randomRanges(random, 4, m.names, true) {
		p.shards = append(p.shards, p.join(t, r, subjects))
	}
	c.processes = []*process{p}
	c.compare("at first")
	p.checkFollows(t, subjects, 1, 4)
	for round := range 2 {
		c.changeAndCut()
		if round == 1 {
			c.changeUnseen()
		}
		c.compare("after changes and cut watches")
		left := make(chan struct{})
		go func() { defer close(left); group.factory.Shutdown() }()
		for range 100 {
			m.change()
		}
		<-left
		c.compare("after the group has left")
		p.checkFollows(t, subjects, 4, 0)
		c.changeAndCut()
		group = p.joinGroup(t, subjects)
		for range 100 {
			m.change()
		}
		c.compare("after the group has come back")
		p.checkFollows(t, subjects, 1, 4)
	}
	c.stopSome()
	c.compare("after the end of some ranges")
	group.factory.Shutdown()
	c.stopAll()
}

var podSubject = subject{gvr: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, kind: "Pod", namespaced: true}

// podWriter creates, changes and deletes pods without waiting.
type podWriter struct {
	t      testing.TB
	client kubernetes.Interface
	spaces []string
	n      int
}

func newPodWriter(t testing.TB) *podWriter {
	t.Helper()
	w := &podWriter{t: t, client: kubernetes.NewForConfigOrDie(plane.AdminConfig())}
	for i := range 8 {
		name := fmt.Sprintf("follow-%c-%d", 'a'+i, time.Now().UnixNano())
		w.spaces = append(w.spaces, name)
		_, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil {
			_, err = w.client.CoreV1().ServiceAccounts(name).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		for _, name := range w.spaces {
			var now int64
			err := w.client.CoreV1().Pods(name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
			if err != nil {
				t.Error(err)
			}
		}
	})
	return w
}

// write creates a pod, and changes or deletes some earlier ones.
func (w *podWriter) write() (namespace, name string) {
	w.t.Helper()
	namespace, name = w.spaces[w.n%len(w.spaces)], fmt.Sprintf("p-%d", w.n)
	pods := func(ago int) (int, string) { return w.n - ago, w.spaces[max(w.n-ago, 0)%len(w.spaces)] }
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if _, err := w.client.CoreV1().Pods(namespace).Create(w.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		w.t.Error(err)
	}
	if n, in := pods(5); n >= 0 && n%2 == 0 {
		patch := []byte(fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, w.n))
		if _, err := w.client.CoreV1().Pods(in).Patch(w.t.Context(), fmt.Sprintf("p-%d", n), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			w.t.Error(err)
		}
	}
	if n, in := pods(9); n >= 0 && n%3 == 0 {
		var now int64
		if err := w.client.CoreV1().Pods(in).Delete(w.t.Context(), fmt.Sprintf("p-%d", n), metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil && !apierrors.IsNotFound(err) {
			w.t.Error(err)
		}
	}
	w.n++
	return namespace, name
}

// podWatches returns how many watches of pods the API server serves.
func podWatches(t testing.TB, client kubernetes.Interface) int {
	t.Helper()
	text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "apiserver_longrunning_requests{") && strings.Contains(line, `resource="pods"`) && strings.Contains(line, `verb="WATCH"`) {
			value, err := strconv.ParseFloat(line[strings.LastIndex(line, " ")+1:], 64)
			if err != nil {
				t.Fatal(err)
			}
			n += int(value)
		}
	}
	return n
}

// TestOneWatchOfPods counts the watches that the API server serves while a group with all pods
// leaves and comes back, during constant writes of pods.
func TestOneWatchOfPods(t *testing.T) {
	writer := newPodWriter(t)
	others := podWatches(t, writer.client)
	objectMetadata := metadata.NewForConfigOrDie(plane.AdminConfig())
	p := startProcess(t, "process", plane.AdminConfig(), nil, nil)
	read := []subject{podSubject}
	group := p.joinGroup(t, read)
	ranges, err := shard.EqualRanges(4)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range ranges {
		p.shards = append(p.shards, p.join(t, r, read))
	}
	check := func(what string, watches, follow int) {
		t.Helper()
		p.checkFollows(t, read, watches, follow)
		eventually(t, func() error {
			if got := podWatches(t, writer.client) - others; got != watches {
				return fmt.Errorf("%s: the API server serves %d watches of pods, want %d", what, got, watches)
			}
			return nil
		})
		eventually(t, func() error {
			want, err := live(t.Context(), objectMetadata, podSubject.gvr)
			if err != nil {
				return err
			}
			fault, difference := p.check(podSubject, want)
			if fault != nil {
				t.Fatalf("%s: %v", what, fault)
			}
			return difference
		})
	}
	check("at first", 1, 4)
	if modes := p.pool.Modes(); len(modes) != 0 {
		t.Errorf("followers have probed who filters: %v", modes)
	}
	for range 3 {
		for range 20 {
			writer.write()
		}
		left := make(chan struct{})
		go func() { defer close(left); group.factory.Shutdown() }()
		for range 40 {
			writer.write()
		}
		<-left
		check("after the group has left", 4, 0)
		group = p.joinGroup(t, read)
		for range 40 {
			writer.write()
		}
		check("after the group has come back", 1, 4)
	}
}

// TestFollowersSeeWhatWasWrittenBefore starts ranges next to a group whose cache was filled long
// ago, and whose watch is cut and delayed half of the time. A range's cache, once full, must have
// what was written before the range started.
func TestFollowersSeeWhatWasWrittenBefore(t *testing.T) {
	writer := newPodWriter(t)
	random := newRandom(t)
	p := startProcess(t, "process", plane.AdminConfig(), nil, nil)
	p.joinGroup(t, []subject{podSubject})
	eventually(t, func() error {
		if n := p.wire.watches("pods"); n != 1 {
			return fmt.Errorf("%d watches", n)
		}
		return nil
	})
	followed := 0
	for i := range 6 {
		if i%2 == 1 {
			p.wire.hold()
		}
		var namespace, name string
		for range 3 {
			namespace, name = writer.write()
		}
		within, err := shard.EqualRanges(4)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range within {
			if !r.ContainsNamespace(namespace) {
				continue
			}
			f := p.pool.NewFactory(r, scopeOfCustom)
			i, err := f.ForResource(podSubject.gvr)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := i.Informer().AddEventHandler(newReplica(func(metav1.Object) bool { return true })); err != nil {
				t.Fatal(err)
			}
			if err := f.Warm(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := i.Lister().ByNamespace(namespace).Get(name); err != nil {
				t.Errorf("a range that started after %s/%s was written has synced without it: %v", namespace, name, err)
			}
			followed += p.pool.Followed()[podSubject.gvr]
			f.Shutdown()
		}
		if i%2 == 1 {
			p.wire.release(expiry(random.IntN(int(expiries))))
		}
	}
	if followed == 0 {
		t.Error("nothing was followed")
	}
}
