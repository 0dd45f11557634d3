package listwatch

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/store"
)

// script answers requests one after the other, and notes them.
type script struct {
	answers []any // an error, a list or a stream; after the last one, watches stay open
	asked   []string
}

func (s *script) next() any {
	if len(s.answers) == 0 {
		return informertest.NewStream(false, false)
	}
	answer := s.answers[0]
	s.answers = s.answers[1:]
	return answer
}

func (s *script) list(context.Context, metav1.ListOptions) (runtime.Object, error) {
	s.asked = append(s.asked, "list")
	switch answer := s.next().(type) {
	case *v1.ConfigMapList:
		return answer, nil
	case error:
		return nil, answer
	default:
		return nil, errors.New("the script has no list here")
	}
}

func (s *script) watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	from := o.ResourceVersion
	if Streams(o) {
		from = "stream"
	}
	s.asked = append(s.asked, from)
	switch answer := s.next().(type) {
	case *informertest.Stream:
		return answer, nil
	case error:
		return nil, answer
	default:
		return nil, errors.New("the script has no watch here")
	}
}

// inVersion returns an object that all lists have.
func inVersion(version string) *v1.ConfigMap {
	c := informertest.ConfigMap("ns", "1")
	c.ResourceVersion = version
	return c
}

func changed(version string) watch.Event {
	return watch.Event{Type: watch.Modified, Object: inVersion(version)}
}

func failed(err *apierrors.StatusError) watch.Event {
	status := err.Status()
	return watch.Event{Type: watch.Error, Object: &status}
}

// TestWhenAReflectionLists follows the requests of Reflections through watches that end or fail.
func TestWhenAReflectionLists(t *testing.T) {
	listed := func(version string) *v1.ConfigMapList {
		return &v1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: []v1.ConfigMap{*inVersion(version)}}
	}
	type answers = []any
	// Called in the bubble of a case, to which a stream belongs.
	ends := func(events ...watch.Event) *informertest.Stream {
		return informertest.NewStream(true, false, events...)
	}
	refused := &url.Error{Op: "Get", URL: "https://127.0.0.1", Err: errors.New("EOF")}
	expired := apierrors.NewResourceExpired("too old")
	future := apierrors.NewTimeoutError("too large resource version", 1)
	future.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
	for name, tc := range map[string]struct {
		answers func() answers
		asked   string // versions stand for watches
	}{
		"a short watch":     {func() answers { return answers{listed("11"), ends(), ends(changed("12"))} }, "list 11 11 12"},
		"two short watches": {func() answers { return answers{listed("11"), ends(), ends(), listed("20")} }, "list 11 11 list 20"},
		"short watches without end": {func() answers {
			return answers{listed("11"), ends(), ends(), listed("11"), ends(), ends(), listed("11")}
		}, "list 11 11 list 11 11 list 11"},
		"news between short watches": {func() answers { return answers{listed("11"), ends(), ends(changed("12")), ends(), ends(changed("13"))} }, "list 11 11 12 12 13"},
		"no connection":              {func() answers { return answers{listed("11"), refused, refused, refused} }, "list 11 11 11 11"},
		"no connection for long": {func() answers {
			return append(append(answers{listed("11")}, slices.Repeat(answers{refused}, 13)...), listed("30"))
		}, "list" + strings.Repeat(" 11", 11) + " list list list 30"},
		"overload": {func() answers {
			return answers{listed("11"), apierrors.NewServiceUnavailable("busy"), ends(changed("12"))}
		}, "list 11 11 12"},
		"overload, and a short watch": {func() answers {
			return answers{listed("11"), apierrors.NewServiceUnavailable("busy"), ends(), listed("20")}
		}, "list 11 11 list 20"},
		"too old": {func() answers { return answers{listed("11"), ends(changed("12")), expired, listed("30")} }, "list 11 12 list 30"},
		"too old, said by the watch": {func() answers {
			return answers{listed("11"), ends(changed("12"), failed(expired)), ends(failed(expired)), listed("30")}
		}, "list 11 12 list 30"},
		"too new": {func() answers { return answers{listed("11"), future, listed("9")} }, "list 11 list 9"},
		"forbidden": {func() answers {
			return answers{listed("11"), apierrors.NewForbidden(schema.GroupResource{}, "", nil), listed("20")}
		}, "list 11 list 20"},
		"an error of the client's own": {func() answers { return answers{listed("11"), errors.New("no token"), listed("20")} }, "list 11 list 20"},
		"a list fails":                 {func() answers { return answers{listed("11"), expired, refused, refused, listed("30")} }, "list 11 list list list 30"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: tc.answers()}
				lw := informertest.WithoutStreaming{ListWatch: &cache.ListWatch{ListWithContextFunc: s.list, WatchFuncWithContext: s.watch}}
				i := store.New(store.Config{Example: &v1.ConfigMap{}, Source: func(ctx context.Context, into *store.Sink) {
					Reflection{lw, &v1.ConfigMap{}, "test", "configmaps"}.Run(ctx, into)
				}})
				var told informertest.Recorder
				informertest.MustAdd(t, i, &told)
				informertest.Run(t, i)
				time.Sleep(time.Hour) // virtual
				synctest.Wait()
				if got := strings.Join(s.asked, " "); got != tc.asked {
					t.Errorf("it asked for %s, want %s", got, tc.asked)
				}
				if calls := told.Take(); slices.ContainsFunc(calls, func(call string) bool { return strings.HasPrefix(call, "missed") }) {
					t.Errorf("a handler was told %q, though the object has always been there", calls)
				}
			})
		})
	}
}

// TestReflectionContinues checks the requests of a Reflection whose store is filled, with a server
// that streams lists.
func TestReflectionContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := informertest.ConfigMap("", "")
		end.ResourceVersion = "30"
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		s := &script{answers: []any{
			informertest.NewStream(true, false, changed("12")),
			apierrors.NewResourceExpired("too old"),
			informertest.NewStream(false, false, watch.Event{Type: watch.Added, Object: inVersion("12")}, watch.Event{Type: watch.Bookmark, Object: end},
				failed(apierrors.NewInternalError(errors.New("broken")))),
		}}
		var after []time.Duration
		began := time.Now()
		lw := &cache.ListWatch{
			ListWithContextFunc: s.list,
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				after = append(after, time.Since(began))
				return s.watch(ctx, o)
			},
		}
		i := store.New(store.Config{Example: &v1.ConfigMap{}, Source: func(ctx context.Context, into *store.Sink) {
			if err := into.Replace([]any{inVersion("10")}, "11"); err != nil {
				t.Error(err)
			}
			Reflection{lw, &v1.ConfigMap{}, "test", "configmaps"}.Run(ctx, into)
		}})
		var told informertest.Recorder
		informertest.MustAdd(t, i, &told)
		informertest.Run(t, i)
		informertest.CheckCalls(t, "a handler", &told, "add ns/1@10 initial=true", "update ns/1@10 -> ns/1@12")
		if got := i.LastSyncResourceVersion(); got != "30" {
			t.Errorf("it is at version %s, want 30", got)
		}
		time.Sleep(time.Minute) // virtual
		synctest.Wait()
		if diff := cmp.Diff([]string{"11", "12", "stream", "30"}, s.asked); diff != "" {
			t.Errorf("it asked for (-want +got):\n%s", diff)
		}
		if got := fmt.Sprint(after[:3]); got != "[0s 0s 0s]" {
			t.Errorf("it asked after %s, want at once", got)
		}
	})
}
