package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmanager "sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/flotilla-kube/flotilla/pkg/flotilla"
	"github.com/flotilla-kube/flotilla/pkg/manager"
	"github.com/flotilla-kube/flotilla/test/harness"
)

const pickedLabel = "flotilla.test/picked"

// TestManagerWithASelector runs Managers that select only labelled ConfigMaps, next to one that
// selects all, and hands their shards over to a member whose watches lag. The last writes are to
// ConfigMaps without the label.
func TestManagerWithASelector(t *testing.T) {
	t.Parallel()
	picked := map[string]string{pickedLabel: "yes"}
	err := harness.InParallel(teams, func(i int) error {
		m := configMap(team(i), "picked")
		m.Labels = picked
		_, err := client.CoreV1().ConfigMaps(team(i)).Create(t.Context(), m, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var atBegin seen
	run := func(member string, config *rest.Config, handedOver func()) (*shards, func() error) {
		var managers, others shards
		var reconciled, all seen
		takes := func(s *flotilla.Shard, mgr ctrlmanager.Manager) error {
			return errors.Join(all.reconciles(s, mgr), mgr.Add(lastWriteLookup{s, mgr, member, &atBegin}))
		}
		f, end := begin(t, config, func(f *flotilla.Fleet) {
			f.Namespaced("picks", buildPicking(&managers, &reconciled, picked))
			f.Namespaced("takes", others.build(takes))
		}, func(o *flotilla.Options) { o.Ranges, o.Member = 2, member })
		awaitReady(t, f)
		handedOver()
		awaitReady(t, f)
		for name, s := range managers.elected(t) {
			requireEventuallySame(t, &reconciled, name, owned(s.Shard))
			requireEventuallySame(t, &all, name, owned(s.Shard)) // without a selector it has all
			requirePicked(t, s)
		}
		return &managers, end
	}
	_, end := run("one", plane.AdminConfig(), func() {})
	late := plane.AdminConfig()
	late.Wrap(func(rt http.RoundTripper) http.RoundTripper { return lateWatches{rt} })
	managers, _ := run("two", late, func() {
		if err := end(); err != nil {
			t.Fatal(err)
		}
	})
	// The last writes were to objects that are not selected. The caches must have reached them all
	// the same.
	for name := range managers.get() {
		name = "two " + name
		harness.Eventually(t, harness.Patience, name+" has looked", func(context.Context) error {
			if len(atBegin.of(name)) == 0 {
				return errors.New("it has not")
			}
			return nil
		})
		requireSame(t, "the last write, as "+name+" begins", atBegin.of(name), []string{"<nil>"})
	}

	// An object that has lost its label is gone.
	for _, s := range managers.get() {
		at := owned(s.Shard)[0]
		m, err := client.CoreV1().ConfigMaps(at).Get(t.Context(), "picked", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m.Labels = nil
		if _, err := client.CoreV1().ConfigMaps(at).Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, harness.Patience, "an object that is no longer selected was reconciled", func(ctx context.Context) error {
			_, err := client.CoreV1().ConfigMaps(at).Get(ctx, "gone", metav1.GetOptions{})
			return err
		})
	}
}

// lastWriteLookup is a runnable that, once it begins, looks for the last write of the shard's
// previous owner.
type lastWriteLookup struct {
	shard  *flotilla.Shard
	mgr    ctrlmanager.Manager
	member string
	found  *seen
}

func (l lastWriteLookup) Start(ctx context.Context) error {
	at := ctrlclient.ObjectKey{Namespace: owned(l.shard)[0], Name: "beside"}
	err := l.mgr.GetClient().Get(ctx, at, &corev1.ConfigMap{})
	l.found.note(l.member+" "+l.shard.String(), fmt.Sprint(err))
	return nil
}

// latency is how late a watch is: less than the time a fleet gives a cache to catch up.
const latency = time.Second

// lateWatches delays the events of ConfigMap watches.
type lateWatches struct{ next http.RoundTripper }

func (l lateWatches) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	watches := req.URL.Path == "/api/v1/configmaps" && req.URL.Query().Has("watch")
	if err != nil || !watches || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	type piece struct {
		at   time.Time
		data []byte
		err  error
	}
	pieces, body := make(chan piece, 1024), resp.Body
	go func() {
		for err := error(nil); err == nil; {
			data, n := make([]byte, 64<<10), 0
			n, err = body.Read(data)
			pieces <- piece{time.Now().Add(latency), data[:n], err}
		}
	}()
	r, w := io.Pipe()
	go func() {
		for err := error(nil); err == nil; {
			p := <-pieces
			<-time.After(time.Until(p.at))
			if _, err = w.Write(p.data); err == nil {
				err = p.err
			}
			if err != nil {
				_ = w.CloseWithError(err)
			}
		}
	}()
	resp.Body = lateBody{r, body}
	return resp, nil
}

type lateBody struct {
	*io.PipeReader
	body io.Closer
}

func (b lateBody) Close() error { return errors.Join(b.PipeReader.Close(), b.body.Close()) }

// buildPicking builds Managers that see the selected ConfigMaps. They write ConfigMaps that are not
// selected: one for each that is gone, and one as their last act.
func buildPicking(managers *shards, reconciled *seen, picked map[string]string) flotilla.Build {
	return func(ctx context.Context, s *flotilla.Shard) (flotilla.Runnable, error) {
		o := manager.Options(s, clientscheme.Scheme)
		o.Cache.ByObject = map[ctrlclient.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: labels.SelectorFromSet(picked)}}
		return manager.New(ctx, s, o, func(mgr ctrlmanager.Manager) error {
			managers.add(s, mgr)
			last := ctrlmanager.RunnableFunc(func(ctx context.Context) error {
				<-ctx.Done()
				m := configMap(owned(s)[0], "beside")
				err := mgr.GetClient().Create(context.WithoutCancel(ctx), m)
				return ctrlclient.IgnoreAlreadyExists(err)
			})
			if err := mgr.Add(last); err != nil {
				return err
			}
			return builder.ControllerManagedBy(mgr).Named("picking").For(&corev1.ConfigMap{}).Complete(
				reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
					if r.Name != "picked" {
						reconciled.note(s.String(), r.String()+" which is not picked")
						return reconcile.Result{}, nil
					}
					reconciled.note(s.String(), r.Namespace)
					err := mgr.GetClient().Get(ctx, r.NamespacedName, &corev1.ConfigMap{})
					if apierrors.IsNotFound(err) {
						err = mgr.GetClient().Create(ctx, configMap(r.Namespace, "gone"))
					}
					return reconcile.Result{}, ctrlclient.IgnoreAlreadyExists(err)
				}))
		})
	}
}

// requirePicked requires that the cached client finds exactly the selected objects, in the range
// and outside.
func requirePicked(t *testing.T, s shardOf) {
	t.Helper()
	c := s.mgr.GetClient()
	var list corev1.ConfigMapList
	if err := c.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range list.Items {
		found = append(found, m.Namespace)
	}
	requireSame(t, "picked ConfigMaps", found, owned(s.Shard))
	for _, namespace := range []string{owned(s.Shard)[0], foreign(s.Shard)} {
		var m corev1.ConfigMap
		err := c.Get(t.Context(), ctrlclient.ObjectKey{Namespace: namespace, Name: "picked"}, &m)
		if other := c.Get(t.Context(), ctrlclient.ObjectKey{Namespace: namespace, Name: "a"}, &m); err != nil || !apierrors.IsNotFound(other) {
			t.Errorf("in %s: a selected object: %v, another object: %v", namespace, err, other)
		}
		err = c.List(t.Context(), &list, ctrlclient.InNamespace(namespace))
		if err == nil && (len(list.Items) != 1 || list.Items[0].Name != "picked") {
			err = errors.New(fmt.Sprint("there are ", len(list.Items)))
		}
		if err != nil {
			t.Errorf("a list of %s: %v", namespace, err)
		}
	}
}
