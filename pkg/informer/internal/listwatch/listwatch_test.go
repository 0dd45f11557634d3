package listwatch

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/ptr"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestMain(m *testing.M) { informertest.Main(m) }

// TestNothingIsReadUnfiltered checks that a single range does not read everything from a server
// that does not filter.
func TestNothingIsReadUnfiltered(t *testing.T) {
	watches := func(o metav1.ListOptions) func(context.Context, *Ranged) error {
		return func(ctx context.Context, lw *Ranged) error {
			_, err := lw.WatchWithContext(ctx, o)
			return err
		}
	}
	for name, tc := range map[string]struct {
		ask  func(context.Context, *Ranged) error
		lost bool
	}{
		"list": {func(ctx context.Context, lw *Ranged) error {
			_, err := lw.ListWithContext(ctx, metav1.ListOptions{ResourceVersion: "0"})
			return err
		}, true},
		"watch that is a list": {watches(metav1.ListOptions{SendInitialEvents: ptr.To(true)}), true},
		"watch":                {watches(metav1.ListOptions{ResourceVersion: "7"}), false},
	} {
		t.Run(name, func(t *testing.T) {
			read := &page{list: configMapList(), options: metav1.ListOptions{ResourceVersion: "untouched"}}
			lw, _ := filtering(read, false)
			ctx, cancel := context.WithCancel(t.Context())
			stopped := 0
			lw.Stop = func(lost bool) {
				if stopped++; lost != tc.lost {
					t.Errorf("stopped about to list: %t, want %t", lost, tc.lost)
				}
				cancel()
			}
			if err := tc.ask(ctx, lw); !errors.Is(err, context.Canceled) || stopped != 1 {
				t.Errorf("got error %v, want that of what was stopped; stopped %d times", err, stopped)
			}
			if read.options.ResourceVersion != "untouched" {
				t.Errorf("asked for %v", read.options)
			}
		})
	}
}

// TestFilteredListOfAWatch checks that the filter applies to the list at the start of a watch, and
// not to the events after it.
func TestFilteredListOfAWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := informertest.ConfigMap("", "")
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		var discarded atomic.Int64
		w := FilterWatch(informertest.NewStream(true, false,
			watch.Event{Type: watch.Added, Object: informertest.ConfigMap("other", "1")},
			watch.Event{Type: watch.Bookmark, Object: informertest.ConfigMap("", "")}, // a bookmark without the annotation that ends a list
			watch.Event{Type: watch.Added, Object: informertest.ConfigMap("other", "2")},
			watch.Event{Type: watch.Added, Object: informertest.ConfigMap("mine", "2")},
			watch.Event{Type: watch.Bookmark, Object: end},
			watch.Event{Type: watch.Added, Object: informertest.ConfigMap("other", "3")},
		), Only(func(obj any) bool { return obj.(*v1.ConfigMap).Namespace == "mine" }), &discarded, true)
		var got []string
		for event := range w.ResultChan() {
			got = append(got, fmt.Sprintf("%s %s", event.Type, informertest.Name(event.Object)))
		}
		if diff := cmp.Diff([]string{"BOOKMARK /@", "ADDED mine/2@", "BOOKMARK /@", "ADDED other/3@"}, got); diff != "" || discarded.Load() != 2 {
			t.Errorf("discarded %d; events (-want +got):\n%s", discarded.Load(), diff)
		}
		w.Stop()
	})
}

func filteredStream(s *informertest.Stream) (watch.Interface, *atomic.Int64) {
	var discarded atomic.Int64
	return FilterWatch(s, Only(func(obj any) bool { return obj.(*v1.ConfigMap).Namespace == "mine" }), &discarded, false), &discarded
}

func TestFilteredWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []watch.Event
		for _, namespace := range []string{"mine", "other"} {
			for _, verb := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
				events = append(events, watch.Event{Type: verb, Object: informertest.ConfigMap(namespace, "1")})
			}
		}
		events = append(events,
			// Bookmarks and errors are not objects of the resource and pass the filter.
			watch.Event{Type: watch.Bookmark, Object: informertest.ConfigMap("", "")},
			watch.Event{Type: watch.Error, Object: &metav1.Status{Reason: metav1.StatusReasonExpired}})
		w, discarded := filteredStream(informertest.NewStream(true, false, events...))
		var got []string
		for event := range w.ResultChan() {
			got = append(got, fmt.Sprintf("%s %s", event.Type, informertest.Name(event.Object)))
		}
		want := []string{"ADDED mine/1@", "MODIFIED mine/1@", "DELETED mine/1@", "BOOKMARK /@", "ERROR *v1.Status"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if got := discarded.Load(); got != 3 {
			t.Errorf("discarded %d events, want 3", got)
		}
		w.Stop()
	})
}

// TestFilteredWatchStops stops a watch that is delivering an event to a reader that has gone. The
// bubble would not end if a goroutine were left.
func TestFilteredWatchStops(t *testing.T) {
	mine := watch.Event{Type: watch.Added, Object: informertest.ConfigMap("mine", "1")}
	other := watch.Event{Type: watch.Added, Object: informertest.ConfigMap("other", "1")}
	for _, test := range []struct {
		name   string
		events []watch.Event
	}{
		{"before any event", nil},
		{"with an event in flight", []watch.Event{mine}},
		{"after a dropped event", []watch.Event{other}},
		{"with more events behind the one in flight", []watch.Event{mine, mine, other}},
	} {
		for i := range 4 {
			ends, deaf := i&1 != 0, i&2 != 0
			t.Run(fmt.Sprintf("%s, ends=%t, deaf=%t", test.name, ends, deaf), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w, _ := filteredStream(informertest.NewStream(ends, deaf, test.events...))
					synctest.Wait()
					w.Stop()
					w.Stop()
					synctest.Wait()
					if _, open := <-w.ResultChan(); open {
						t.Error("an event was delivered after Stop")
					}
				})
			})
		}
	}
}

// page answers one list, and records the options.
type page struct {
	list    runtime.Object
	err     error
	options metav1.ListOptions
}

func (p *page) List(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	p.options = o
	return p.list, p.err
}

func (p *page) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	p.options = o
	return informertest.NewStream(false, false), p.err
}

func filtering(r Reader, honoured bool) (*Ranged, *atomic.Int64) {
	var discarded atomic.Int64
	within := shard.Range{End: 1 << 63}
	return &Ranged{
		Reader: r, Selector: within.Selector(), Keep: informertest.InRange(within), Discarded: &discarded,
		Honoured: func(context.Context) bool { return honoured },
	}, &discarded
}

func configMapList(namespaces ...string) *v1.ConfigMapList {
	list := &v1.ConfigMapList{}
	list.ResourceVersion, list.Continue = "42", "token"
	list.RemainingItemCount = new(int64)
	for _, namespace := range namespaces {
		list.Items = append(list.Items, *informertest.ConfigMap(namespace, "1"))
	}
	return list
}

// TestFilteredPage checks that the filter keeps a list's metadata: without the version a watch
// would miss events, and without the token the next pages would be lost.
func TestFilteredPage(t *testing.T) {
	for _, test := range []struct {
		name     string
		in, want []string
	}{
		{"nothing", nil, nil},
		{"all is kept", []string{"beta", "gamma"}, []string{"beta", "gamma"}},
		{"all is dropped", []string{"alpha", "port"}, nil},
		{"some is dropped", []string{"alpha", "beta", "port", "gamma"}, []string{"beta", "gamma"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var discarded atomic.Int64
			got := configMapList(test.in...)
			if err := FilterList(got, Only(informertest.InRange(shard.Range{End: 1 << 63})), &discarded); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(configMapList(test.want...).ListMeta, got.ListMeta); diff != "" {
				t.Errorf("list metadata (-want +got):\n%s", diff)
			}
			var kept []string
			for _, item := range got.Items {
				kept = append(kept, item.Namespace)
			}
			if diff := cmp.Diff(test.want, kept); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if got := int(discarded.Load()); got != len(test.in)-len(test.want) {
				t.Errorf("discarded %d objects, want %d", got, len(test.in)-len(test.want))
			}
		})
	}
}

// pages is a resource with many pages, some of which the filter empties.
type pages struct{ page }

func (p *pages) List(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
	contents := map[string][]string{"": {"alpha", "beta"}, "1": {"alpha", "port"}, "2": {"port", "gamma"}}
	next := map[string]string{"": "1", "1": "2"}
	list := configMapList(contents[o.Continue]...)
	list.Continue = next[o.Continue]
	return list, nil
}

func TestEmptyPageIsNotTheLast(t *testing.T) {
	lw, _ := filtering(&pages{}, true) // as from a server that should filter and does not
	var got []string
	err := pager.New(lw.ListWithContext).EachListItem(t.Context(), metav1.ListOptions{Limit: 2}, func(obj runtime.Object) error {
		got = append(got, obj.(*v1.ConfigMap).Namespace)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"beta", "gamma"}, got); diff != "" {
		t.Errorf("objects of all pages (-want +got):\n%s", diff)
	}
}

// TestSelectorOnlyWhereHonoured checks that all options pass, and that the selector is added only
// for a server that is known to honour it.
func TestSelectorOnlyWhereHonoured(t *testing.T) {
	for _, honoured := range []bool{false, true} {
		t.Run(fmt.Sprint(honoured), func(t *testing.T) {
			options := metav1.ListOptions{ResourceVersion: "7", Limit: 3, Continue: "token", AllowWatchBookmarks: true}
			read := &page{list: configMapList()}
			lw, _ := filtering(read, honoured)
			want := options
			if honoured {
				want.ShardSelector = "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000')"
			}
			if _, err := lw.ListWithContext(t.Context(), options); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, read.options); diff != "" {
				t.Errorf("options of the list (-want +got):\n%s", diff)
			}
			read.err = errors.New("no")
			if _, err := lw.ListWithContext(t.Context(), options); !errors.Is(err, read.err) {
				t.Errorf("list: got error %v, want %v", err, read.err)
			}
			if !honoured {
				return // it does not watch
			}
			read.err = nil
			w, err := lw.WatchWithContext(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if diff := cmp.Diff(want, read.options); diff != "" {
				t.Errorf("options of the watch (-want +got):\n%s", diff)
			}
			read.err = errors.New("no")
			if _, err := lw.WatchWithContext(t.Context(), options); !errors.Is(err, read.err) {
				t.Errorf("watch: got error %v, want %v", err, read.err)
			}
		})
	}
}
