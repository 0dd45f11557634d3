package listwatch

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
)

// TestReflectionResumes checks the requests of a Reflector that continues from a version, with a
// server that streams lists.
func TestReflectionResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := func(version string) *v1.ConfigMap {
			c := informertest.ConfigMap("ns", "1")
			c.ResourceVersion = version
			return c
		}
		end := informertest.ConfigMap("", "")
		end.ResourceVersion = "30"
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		expired := apierrors.NewResourceExpired("too old").Status()
		answers := []*informertest.Stream{
			informertest.NewStream(true, false, watch.Event{Type: watch.Modified, Object: at("12")}, watch.Event{Type: watch.Error, Object: &expired}),
			informertest.NewStream(false, false, watch.Event{Type: watch.Added, Object: at("12")}, watch.Event{Type: watch.Bookmark, Object: end}),
		}
		var asked []string
		began := time.Now()
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				asked = append(asked, "list")
				return nil, errors.New("streams only")
			},
			WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
				if len(asked) == len(answers) {
					return nil, errors.New("nothing more to say")
				}
				asked = append(asked, fmt.Sprintf("watch from %s, streams %t, after %v", o.ResourceVersion, Streams(o), time.Since(began)))
				return answers[len(asked)-1], nil
			},
		}
		i := store.New(store.Config{Example: &v1.ConfigMap{}, Source: func(ctx context.Context, into *store.Sink) {
			if err := into.Replace([]any{at("10")}, "11"); err != nil {
				t.Error(err)
			}
			Reflection{lw, &v1.ConfigMap{}, "test", "configmaps"}.Run(ctx, into, into.Place())
		}})
		var told informertest.Recorder
		informertest.MustAdd(t, i, &told)
		informertest.Run(t, i)
		informertest.CheckCalls(t, "a handler", &told, "add ns/1@10 initial=true", "update ns/1@10 -> ns/1@12")
		if got := i.LastSyncResourceVersion(); got != "30" {
			t.Errorf("it is at version %s, want 30", got)
		}
		want := []string{"watch from 11, streams false, after 0s", "watch from 12, streams true, after 0s"}
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Errorf("it asked for (-want +got):\n%s", diff)
		}
	})
}
