package informer

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

const tokens = "type=kubernetes.io/service-account-token"

func newSecret(namespace, name string, kind v1.SecretType) *v1.Secret {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-" + name)}, Type: kind}
}

// readingPart returns a factory's informer of a part of Secrets, as Narrowed would, that reads from
// r.
func (f *Factory) readingPart(narrow string, r listwatch.Reader) cache.SharedIndexInformer {
	return inner(f.informer(sharedKey{resource: secrets, narrow: narrow}, nil, true, part{r, narrow}, &v1.Secret{}))
}

// TestPartIsFilteredTwice asks for tokens from a server that ignores the selector and sends all
// Secrets.
func TestPartIsFilteredTwice(t *testing.T) {
	for _, within := range []shard.Range{shard.Everything(), {Start: 1, End: 0}} {
		synctest.Test(t, func(t *testing.T) {
			all := newFakeResource(t)
			all.Add(newSecret("a", "token", v1.SecretTypeServiceAccountToken))
			all.Add(newSecret("a", "password", v1.SecretTypeOpaque))
			f := newTestPool(t, &apiServer{}, clock.RealClock{}, time.Hour).NewFactory(within, nil)
			defer f.Shutdown()
			var told informertest.Recorder
			i := f.readingPart(tokens, all)
			informertest.MustAdd(t, i, &told)
			f.StartWithContext(t.Context())
			time.Sleep(time.Second) // virtual: past what ranges that read together wait for each other
			synctest.Wait()
			all.Modify(newSecret("a", "password", v1.SecretTypeOpaque))
			all.Add(newSecret("a", "registry", v1.SecretTypeDockerConfigJson))
			all.Delete(newSecret("a", "registry", v1.SecretTypeDockerConfigJson))
			all.Delete(newSecret("a", "token", v1.SecretTypeServiceAccountToken))
			informertest.CheckCalls(t, "a handler of tokens", &told, "add a/token@1 initial=true", "delete a/token@6")
			if held := i.GetStore().ListKeys(); len(held) != 0 {
				t.Errorf("the cache of tokens holds %v", held)
			}
			for _, options := range all.options {
				if options.FieldSelector != tokens {
					t.Errorf("a request has the field selector %q, want %q", options.FieldSelector, tokens)
				}
			}
			if len(all.options) < 2 {
				t.Errorf("%d requests, want a list and a watch", len(all.options))
			}
		})
	}
}

// TestPartIsAnInformerOfItsOwn checks that a kind as a whole, each part of it, and its metadata are
// separate informers.
func TestPartIsAnInformerOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := newTestPool(t, &apiServer{}, clock.RealClock{}, 0)
		low, _ := halves(t, pool)
		everything, again := pool.NewFactory(shard.Everything(), nil), pool.NewFactory(shard.Everything(), nil)
		defer everything.Shutdown()
		defer again.Shutdown()
		indexers := func(f *Factory) []cache.Indexer {
			first, second := narrowed(t, f, tokens), narrowed(t, f, "type=bootstrap.kubernetes.io/token,metadata.namespace=kube-system")
			generic, err := first.ForResource(secrets)
			if err != nil || generic.Informer().GetIndexer() != first.Core().V1().Secrets().Informer().GetIndexer() {
				t.Errorf("ForResource leads to another informer, error %v", err)
			}
			if first.Core().V1().ConfigMaps().Informer().GetIndexer() != f.Core().V1().ConfigMaps().Informer().GetIndexer() {
				t.Error("a kind that is not narrowed has another informer")
			}
			metadata, err := f.ObjectOrMetadata().ForResource(secrets)
			if err != nil {
				t.Fatal(err)
			}
			return []cache.Indexer{
				first.Core().V1().Secrets().Informer().GetIndexer(), second.Core().V1().Secrets().Informer().GetIndexer(),
				metadata.Informer().GetIndexer(), f.Core().V1().Secrets().Informer().GetIndexer(),
			}
		}
		for _, f := range []*Factory{low, everything} {
			all := indexers(f)
			for i := range all {
				if slices.Index(all, all[i]) != i {
					t.Errorf("informer %d of %v is used for two things", i, f.within)
				}
			}
			if !slices.Equal(all, indexers(f)) {
				t.Error("asked again, another informer answers")
			}
		}
		if !slices.Equal(indexers(everything), indexers(again)) {
			t.Error("two shards that have everything do not share their informers")
		}
	})
}

func narrowed(t *testing.T, f *Factory, selector string) *Narrowed {
	t.Helper()
	n, err := f.Narrowed(map[schema.GroupVersionResource]string{secrets: selector})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWhatCannotBeNarrowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		low, _ := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		for _, c := range []struct {
			resource       schema.GroupVersionResource
			selector, want string
		}{
			{secrets, "", "not empty"},
			{secrets, "type", "must be a field selector"},
			{secrets, "data.password=1234", `field "data.password"`},
			{configMaps, tokens, `field "type"`},
			{namespaces, "metadata.name=a", "core group"},
			{berths, "metadata.name=a", "core group"},
			{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "metadata.name=a", "core group"},
		} {
			_, err := low.Narrowed(map[schema.GroupVersionResource]string{c.resource: c.selector})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("narrowing %v by %q: error %v, want one with %q", c.resource, c.selector, err, c.want)
			}
		}
	})
}

// TestWritesOutsideOfAPart has a warm part catch up with a write outside its selector: it checks
// with a list by that selector, and is fresh. For a write inside its selector it waits.
func TestWritesOutsideOfAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := namesInHalves(t)
		all, server := newFakeResource(t), &apiServer{}
		low, _ := halves(t, newTestPool(t, server, clock.RealClock{}, 0))
		low.readingPart(tokens, all)
		if err := low.Warm(t.Context()); err != nil {
			t.Fatal(err)
		}
		server.requests()
		marks := map[schema.GroupResource]Mark{secrets.GroupResource(): {Version: "5"}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := low.CatchUp(ctx, marks); err != nil {
			t.Error(err)
		}
		if asked := lists(server); !slices.Equal(asked, []string{tokens}) {
			t.Errorf("lists with the selectors %q, want one, with %q", asked, tokens)
		}

		// The server has a token of version 7 that the cache lacks.
		server.set(func(s *apiServer) {
			s.items = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "token", UID: "uid-token", ResourceVersion: "1"}}}
		})
		caught := make(chan error, 1)
		go func() { caught <- low.CatchUp(ctx, marks) }()
		time.Sleep(time.Second)
		select {
		case err := <-caught:
			t.Errorf("caught up with what was not there, error %v", err)
		default:
		}
		all.Add(newSecret(mine, "token", v1.SecretTypeServiceAccountToken))
		if err := <-caught; err != nil {
			t.Error(err)
		}
		server.requests()
		if err := low.Refresh(ctx); err != nil {
			t.Error(err)
		}
		if asked := lists(server); !slices.Equal(asked, []string{tokens}) {
			t.Errorf("Refresh lists with the selectors %q, want one, with %q", asked, tokens)
		}
	})
}

// lists returns the field selectors of the lists of metadata.
func lists(s *apiServer) []string {
	var selectors []string
	for _, request := range s.requests() {
		if strings.Contains(request.Header.Get("Accept"), "PartialObjectMetadataList") {
			selectors = append(selectors, request.URL.Query().Get("fieldSelector"))
		}
	}
	return selectors
}

// TestPartDoesNotWeigh checks that a part of a kind weighs nothing if the whole kind is cached, and
// otherwise weighs what it holds.
func TestPartDoesNotWeigh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, _ := namesInHalves(t)
		all := newFakeResource(t)
		all.Add(newSecret(mine, "token", v1.SecretTypeServiceAccountToken))
		all.Add(newSecret(mine, "password", v1.SecretTypeOpaque))
		low, _ := halves(t, newTestPool(t, &apiServer{}, clock.RealClock{}, 0))
		low.readingPart(tokens, all)
		for _, want := range []int64{1, 2} {
			low.StartWithContext(t.Context())
			time.Sleep(time.Second) // virtual: as above
			synctest.Wait()
			if got := low.Weights(); !maps.Equal(got, map[string]int64{mine: want}) {
				t.Errorf("weights %v, want %s: %d", got, mine, want)
			}
			low.informer(sharedKey{resource: secrets, metadata: true}, nil, true, all, &v1.Secret{})
		}
	})
}

// TestProbeBringsNothing checks that a probe asks for no objects even if the server does not
// filter.
func TestProbeBringsNothing(t *testing.T) {
	server := &apiServer{}
	pool := newTestPool(t, server, clock.RealClock{}, 0)
	if pool.prober.Honoured(t.Context(), listwatch.Form{Resource: secrets}, nil) {
		t.Error("a server without shards is said to honour them")
	}
	asked := server.requests()
	if len(asked) != 1 || asked[0].URL.Query().Get("fieldSelector") != listwatch.ProbeNobody {
		t.Errorf("asked %v, want one request, for %s", asked, listwatch.ProbeNobody)
	}
}
