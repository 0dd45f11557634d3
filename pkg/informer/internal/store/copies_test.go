package store

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestWhatARangeHoldsIsTakenOver has a range join an informer of slim copies, which another
// informer follows, and checks when it may follow: never if it has missed something, or would go
// back in time.
func TestWhatARangeHoldsIsTakenOver(t *testing.T) {
	at := func(version string) *v1.ConfigMap {
		c := informertest.WithData("ns", version)
		c.ResourceVersion = version
		return c
	}
	for name, test := range map[string]struct {
		before, after func(w copiesWorld) error // the range joins in between
		follows       bool
		version       string // that the range holds in the end
	}{
		"nothing has changed": {follows: true, version: "3"},
		"the range is ahead": {
			after:   func(w copiesWorld) error { return w.ranged.Bookmark("9") },
			version: "3",
		},
		"the range has missed a change": {
			before:  func(w copiesWorld) error { return w.slim.Update(at("7")) },
			version: "3",
		},
		"the range has heard of it, too": {
			before:  func(w copiesWorld) error { return errors.Join(w.slim.Update(at("7")), w.ranged.Update(at("7"))) },
			follows: true, version: "7",
		},
		"it has changed since the range joined": {
			after:   func(w copiesWorld) error { return w.slim.Update(at("8")) },
			follows: true, version: "8",
		},
		"it has been listed since the range joined": {
			after: func(w copiesWorld) error {
				return w.slim.Replace([]any{w.list(t, at("8"))}, "8")
			},
			follows: true, version: "8",
		},
		"the range came during a list": {
			before:  func(w copiesWorld) error { w.list(t, at("3")); return nil },
			version: "3",
		},
		"it has gone since the range joined": {
			after:   func(w copiesWorld) error { return w.slim.Delete(at("8")) },
			follows: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			none := func() []shard.Range { return nil }
			slim := New(Config{Example: &v1.ConfigMap{}, Copies: NewCopies(informertest.SlimConfigMap, none)})
			ranged, other := New(Config{Example: &v1.ConfigMap{}}), New(Config{Example: &v1.ConfigMap{}})
			w := copiesWorld{&Sink{Informer: slim}, &Sink{Informer: ranged}}
			listed := w.list(t, at("3"))
			steps := []func(w copiesWorld) error{
				func(w copiesWorld) error {
					return errors.Join(w.slim.Replace([]any{listed}, "6"), w.ranged.Replace([]any{at("3")}, "5"))
				},
				test.before, test.after,
			}
			into := &Sink{Informer: ranged, Stored: true, Within: shard.Range{Start: 1}}
			for n, step := range steps {
				if step != nil {
					if err := step(w); err != nil {
						t.Fatal(err)
					}
				}
				if n == 0 && !slim.Follow(&Sink{Informer: other, Stored: true}) {
					t.Fatal("slim copies cannot be followed")
				}
				if n == 1 {
					slim.Join(into)
				}
			}
			if could, did := slim.Admits(into), slim.Follow(into); could != test.follows || did != test.follows {
				t.Fatalf("follows: %t, said so before: %t; want %t", did, could, test.follows)
			}
			held := func(i *Informer) *v1.ConfigMap {
				obj, _, err := i.GetStore().GetByKey("ns/one")
				if err != nil {
					t.Fatal(err)
				}
				c, _ := obj.(*v1.ConfigMap)
				return c
			}
			mine := held(ranged)
			if got := resourceVersionOf(mine); got != test.version || mine != nil && len(mine.Data) == 0 {
				t.Errorf("the range holds version %q, whole: %t; want %q", got, mine != nil && len(mine.Data) > 0, test.version)
			}
			if shared := held(slim) == mine && held(other) == mine; shared != test.follows {
				t.Errorf("all hold the same object: %t", shared)
			}
			if got, want := slim.GetIndexer().LastStoreSyncResourceVersion(), slim.LastSyncResourceVersion(); got != want {
				t.Errorf("the store says that it is at %s, and is at %s", got, want)
			}
			slim.Unfollow(into)
			if c := held(slim); c != nil && len(c.Data) > 0 {
				t.Error("it stays whole when the range has left")
			}
		})
	}
}

// resourceVersionOf returns the version of an object; empty for none.
func resourceVersionOf(c *v1.ConfigMap) string {
	if c == nil {
		return ""
	}
	return c.ResourceVersion
}

// TestWhatIsWhole checks which objects an informer of slim copies holds whole, and which ranges may
// follow it, when what is expected changes at awkward moments.
func TestWhatIsWhole(t *testing.T) {
	everywhere := shard.Range{Start: 1} // all of the namespaces here
	failing := errors.New("a test fails")
	heavy := func() *v1.ConfigMap {
		c := informertest.WithData("ns", "3")
		c.ResourceVersion = "3"
		return c
	}
	type world struct {
		copiesWorld
		expected  []shard.Range
		into      *Sink
		transform error
	}
	for name, test := range map[string]struct {
		expected []shard.Range // at the first list
		run      func(t *testing.T, w *world)
		whole    bool // in the end
		follows  bool
	}{
		"expected":     {expected: []shard.Range{everywhere}, whole: true, follows: true},
		"not expected": {},
		"a list has begun after it was expected no more": {
			expected: []shard.Range{everywhere}, whole: true,
			run: func(t *testing.T, w *world) {
				w.expected = nil // what is held has not been reduced yet
				w.list(t, heavy())
			},
		},
		"a list that could not be stored": {
			run: func(t *testing.T, w *world) {
				w.expected, w.transform = []shard.Range{everywhere}, failing
				if err := w.slim.Replace([]any{w.list(t, heavy())}, "7"); !errors.Is(err, failing) {
					t.Error(err)
				}
			},
		},
		"a list of a reading that has ended": {
			run: func(t *testing.T, w *world) {
				w.list(t, heavy()) // its slim copies are stored below
				w.expected = []shard.Range{everywhere}
				ended, end := context.WithCancel(t.Context())
				end()
				if _, err := w.slim.Informer.BeginList(ended, true); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if err := w.slim.Replace([]any{informertest.SlimConfigMap(heavy())}, "7"); err != nil {
					t.Error(err)
				}
			},
		},
		"it joined, was expected, and has left": {
			run: func(t *testing.T, w *world) {
				w.slim.Informer.Join(w.into)
				changed := heavy()
				changed.ResourceVersion = "8"
				if err := w.slim.Update(changed); err != nil {
					t.Error(err)
				}
				w.expected = []shard.Range{everywhere}
				w.slim.Informer.Unfollow(w.into)
			},
		},
		"a range leaves what follows whole objects": {
			expected: []shard.Range{everywhere}, whole: true,
			run: func(t *testing.T, w *world) {
				if err := (&Sink{Informer: w.slim.Informer, Stored: true}).replace([]any{heavy()}, "7"); err != nil {
					t.Error(err)
				}
				w.expected = nil
				w.slim.Informer.Unfollow(w.into)
			},
		},
		"the whole objects have gone": {
			run: func(t *testing.T, w *world) {
				if err := (&Sink{Informer: w.slim.Informer, Stored: true}).replace([]any{heavy()}, "7"); err != nil {
					t.Error(err)
				}
				w.slim.Shed()
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{expected: test.expected}
			slim := New(Config{
				Example: &v1.ConfigMap{}, Shed: informertest.SlimConfigMap,
				Copies:    NewCopies(informertest.SlimConfigMap, func() []shard.Range { return w.expected }),
				Transform: func(obj any) (any, error) { return obj, w.transform },
			})
			ranged := New(Config{Example: &v1.ConfigMap{}})
			w.copiesWorld = copiesWorld{&Sink{Informer: slim}, &Sink{Informer: ranged}}
			w.into = &Sink{Informer: ranged, Stored: true, Within: everywhere}
			if err := w.slim.Replace([]any{w.list(t, heavy())}, "6"); err != nil {
				t.Fatal(err)
			}
			if test.run != nil {
				test.run(t, w)
			}
			if follows := slim.Admits(w.into); follows != test.follows {
				t.Errorf("the range may follow: %t, want %t", follows, test.follows)
			}
			for _, obj := range slim.GetStore().List() {
				if whole := len(obj.(*v1.ConfigMap).Data) > 0; whole != test.whole {
					t.Errorf("%s is whole: %t, want %t", name, whole, test.whole)
				}
			}
		})
	}
}

// copiesWorld has what fills an informer of slim copies, and the informer of a range.
type copiesWorld struct{ slim, ranged *Sink }

// list begins a list of the slim copies, and returns what becomes of an object in it.
func (w copiesWorld) list(t *testing.T, obj any) any {
	t.Helper()
	take, err := w.slim.Informer.BeginList(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	taken, _ := take(obj)
	return taken
}

// TestStrictMetadataOfSlimCopies checks that exchanging slim copies for whole objects leaves the
// metadata made from them as it is.
func TestStrictMetadataOfSlimCopies(t *testing.T) {
	i := New(Config{Example: &metav1.PartialObjectMetadata{}, Shed: onlyMetadata, Strict: true})
	passed := &Sink{Informer: i, Stored: true}
	for _, step := range []func(any) error{passed.Update, func(obj any) error { passed.exchange(obj); return nil }} {
		if err := step(informertest.ConfigMap("a", "one")); err != nil {
			t.Fatal(err)
		}
		for _, obj := range i.GetStore().List() {
			if _, is := obj.(*metav1.PartialObjectMetadata); !is {
				t.Errorf("the cache holds %T", obj)
			}
		}
	}
}

func onlyMetadata(obj any) any {
	if c, is := obj.(*v1.ConfigMap); is {
		return &metav1.PartialObjectMetadata{ObjectMeta: c.ObjectMeta}
	}
	return obj
}
