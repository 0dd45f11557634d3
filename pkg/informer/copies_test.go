package informer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/informer/internal/informertest"
	"github.com/flotilla-kube/flotilla/pkg/informer/internal/listwatch"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// TestExpectedRangeFollows checks that a range which was expected when the informer of slim copies
// listed reads nothing itself and shares its objects, that a range which was not expected lists its
// part, and that nothing stays whole for a range that is not expected any more and has gone.
func TestExpectedRangeFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{fakeResource: newFakeResource(t)}
		inLow, inHigh := namesInHalves(t)
		s.Add(informertest.WithData(inLow, "1"))
		s.Add(informertest.WithData(inHigh, "1"))
		pool := newSlimPool(t, &apiServer{shards: true})
		low, high := halves(t, pool)
		pool.Expect([]shard.Range{low.within})
		group := pool.NewFactory(shard.Everything(), nil)
		defer group.Shutdown()
		slim := group.readingSlim(configMaps, s, &v1.ConfigMap{})
		group.StartWithContext(t.Context())
		isWhole := func(in string) bool { return len(holding(t, slim, in).Data) > 0 }
		look := func(when string, wholeLow, wholeHigh bool) {
			t.Helper()
			settle()
			if isWhole(inLow) != wholeLow || isWhole(inHigh) != wholeHigh {
				t.Errorf("%s: the objects of the ranges are whole: %t and %t, want %t and %t",
					when, isWhole(inLow), isWhole(inHigh), wholeLow, wholeHigh)
			}
		}
		look("before any range", true, false)
		s.asked()
		ranged := low.reading(configMaps, s, &v1.ConfigMap{})
		low.StartWithContext(t.Context())
		look("with the expected range", true, false)
		if everything, own, watches := s.asked(); everything+own+watches != 0 || holding(t, ranged, inLow) != holding(t, slim, inLow) {
			t.Errorf("the expected range caused %d lists of everything, %d of itself and %d watches, or holds an object of its own", everything, own, watches)
		}
		other := high.reading(configMaps, s, &v1.ConfigMap{})
		high.StartWithContext(t.Context())
		look("with a range that was not expected", true, true)
		if _, own, _ := s.asked(); own == 0 || len(holding(t, other, inHigh).Data) == 0 {
			t.Errorf("the other range listed %d times", own)
		}
		s.Modify(informertest.WithData(inLow, "2"))
		pool.Expect(nil)
		look("when it is in use and not expected any more", true, true)
		if got := holding(t, ranged, inLow).Data["v"]; got != "2" {
			t.Errorf("the range holds version %q", got)
		}
		low.Shutdown()
		look("when the range has gone", false, true)
		s.Modify(informertest.WithData(inLow, "3"))
		look("after another change", false, true)
	})
}

// TestExpectedRangeComesBeforeTheList begins with an expected range while slim copies wait for the
// answer to the first question to the API server, and a little later.
func TestExpectedRangeComesBeforeTheList(t *testing.T) {
	const takes = 100 * time.Millisecond
	for after := takes / 10; after <= takes+2*gatherPatience; after += takes / 10 {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slow{fakeResource: newFakeResource(t)}
				inLow, _ := namesInHalves(t)
				s.Add(informertest.WithData(inLow, "1"))
				pool := newSlimPool(t, &apiServer{shards: true, takes: takes})
				low, _ := halves(t, pool)
				pool.Expect([]shard.Range{low.within})
				group := pool.NewFactory(shard.Everything(), nil)
				defer group.Shutdown()
				slim := group.readingSlim(configMaps, s, &v1.ConfigMap{})
				ranged := low.reading(configMaps, s, &v1.ConfigMap{})
				defer low.Shutdown()
				group.StartWithContext(t.Context())
				time.Sleep(after) // virtual
				low.StartWithContext(t.Context())
				settle()
				if everything, own, _ := s.asked(); everything != 1 || own != 0 || holding(t, ranged, inLow) != holding(t, slim, inLow) {
					t.Errorf("%d lists of everything and %d of the range, want only one of everything; or the range holds an object of its own", everything, own)
				}
			})
		})
	}
}

// TestExpectedRangeContinues checks that a range continues from its version, and lists nothing,
// when the informer of slim copies that it followed goes.
func TestExpectedRangeContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{fakeResource: newFakeResource(t)}
		inLow, _ := namesInHalves(t)
		s.Add(informertest.WithData(inLow, "1"))
		pool := newSlimPool(t, &apiServer{shards: true})
		low, _ := halves(t, pool)
		pool.Expect([]shard.Range{low.within})
		group := pool.NewFactory(shard.Everything(), nil)
		group.readingSlim(configMaps, s, &v1.ConfigMap{})
		group.StartWithContext(t.Context())
		ranged := low.reading(configMaps, s, &v1.ConfigMap{})
		low.StartWithContext(t.Context())
		settle()
		s.asked()
		group.Shutdown()
		settle()
		s.Modify(informertest.WithData(inLow, "2"))
		settle()
		if everything, own, watches := s.asked(); everything+own > 0 || watches != 1 {
			t.Errorf("%d lists of everything, %d of the range and %d watches of it, want one watch", everything, own, watches)
		}
		if got := holding(t, ranged, inLow).Data["v"]; got != "2" {
			t.Errorf("the range holds version %q", got)
		}
	})
}

// paged lists two ConfigMaps on a page each, and calls between once it has been asked for the first
// one. It implements listwatch.Reader.
type paged struct {
	items   [2]*v1.ConfigMap
	between func()
}

// List implements listwatch.Reader.
func (p *paged) List(_ context.Context, o metav1.ListOptions) (kruntime.Object, error) {
	list := &v1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	switch {
	case o.ShardSelector != "":
		list.Items = []v1.ConfigMap{*p.items[0], *p.items[1]}
	case o.Continue == "":
		list.Items, list.Continue = []v1.ConfigMap{*p.items[0]}, "1"
		p.between()
	default:
		list.Items = []v1.ConfigMap{*p.items[1]}
	}
	return list, nil
}

// Watch implements listwatch.Reader.
func (p *paged) Watch(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if listwatch.Streams(o) {
		return nil, errors.New("no streaming lists")
	}
	return watch.NewFake(), nil
}

// TestExpectedBetweenPages checks that a range does not follow if it was expected only after the
// first page of a list, of which slim copies had been made.
func TestExpectedBetweenPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inLow, inHigh := namesInHalves(t)
		pool := newSlimPool(t, &apiServer{shards: true})
		low, high := halves(t, pool)
		p := &paged{items: [2]*v1.ConfigMap{informertest.WithData(inHigh, "1"), informertest.WithData(inLow, "1")}}
		p.between = func() { pool.Expect([]shard.Range{low.within, high.within}) }
		pool.Expect([]shard.Range{low.within})
		group := pool.NewFactory(shard.Everything(), nil)
		defer group.Shutdown()
		slim := group.readingSlim(configMaps, p, &v1.ConfigMap{})
		group.StartWithContext(t.Context())
		settle()
		if len(holding(t, slim, inHigh).Data) > 0 || len(holding(t, slim, inLow).Data) == 0 {
			t.Error("not just what was expected from the first page on is whole")
		}
		ranged := high.reading(configMaps, p, &v1.ConfigMap{})
		high.StartWithContext(t.Context())
		settle()
		if len(holding(t, ranged, inHigh).Data) == 0 {
			t.Error("a range holds a slim copy")
		}
	})
}

// settle waits for longer than informers wait for each other.
func settle() {
	time.Sleep(2 * time.Minute) // virtual
	synctest.Wait()
}

// holding returns the only object that an informer holds in a namespace.
func holding(t *testing.T, i cache.SharedIndexInformer, namespace string) *v1.ConfigMap {
	t.Helper()
	var found []*v1.ConfigMap
	for _, obj := range i.GetStore().List() {
		if c := obj.(*v1.ConfigMap); c.Namespace == namespace {
			found = append(found, c)
		}
	}
	if len(found) != 1 {
		t.Fatalf("there are %d objects in %s", len(found), namespace)
	}
	return found[0]
}
