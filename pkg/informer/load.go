package informer

import (
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// sampled is how many objects of a cache are measured to estimate the size of all.
const sampled = 48

// sampling puts keys into a random order.
var sampling = maphash.MakeSeed()

// Load is an estimate of the memory that the caches of a factory take.
type Load struct {
	// Namespaces has the bytes of what only this factory caches, by namespace; cluster-scoped
	// objects are under the empty name.
	Namespaces map[string]int64
	// Shared has the bytes of the factory's part of what factories of everything share: a cache of
	// two of them counts one half in each. It is 0 for a range. What ranges share counts for no
	// factory: see [Pool.Load].
	Shared int64
	// Objects is how many objects these caches hold; an object cached in several forms counts once.
	Objects int64
}

// Load returns an estimate of what the factory's caches take: it counts their keys, and measures a
// few objects of each. What a range holds together with other ranges counts as if the range held it
// alone, and slim copies count as such even if the process has the objects whole. So the sum over a
// process is a little too high, but a factory's load does not depend on what else the process has.
// The only range of a ring counts like any range. Load returns false once the factory has been shut
// down.
func (f *Factory) Load() (Load, bool) {
	load := Load{Namespaces: map[string]int64{}}
	f.mu.Lock()
	informers := maps.Clone(f.informers)
	f.mu.Unlock()
	objects := map[schema.GroupVersionResource]int64{}
	for key, e := range informers {
		own := f.counted(e) != nil
		if !own && f.IsRange() || own && key.resource == namespaces {
			continue // shared by ranges, or Namespaces, which come from the process's one informer
		}
		counts, mean := f.pool.measure(key, e.cache().GetIndexer())
		total := int64(0)
		for namespace, n := range counts {
			total += n
			if own {
				load.Namespaces[namespace] += int64(math.Round(float64(n) * mean))
			}
		}
		if v, shared := e.SharedIndexInformer.(*view); shared && !own {
			groups, _ := f.pool.sharers(v.shared.key)
			load.Shared += int64(math.Round(float64(total) * mean / float64(max(1, groups))))
		}
		objects[key.resource] = max(objects[key.resource], total)
	}
	for _, n := range objects {
		load.Objects += n
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return load, !f.shutdown // Otherwise its caches may have been emptied meanwhile.
}

// Range returns the part of the cluster that the factory's caches hold.
func (f *Factory) Range() shard.Range { return f.within }

// IsRange reports whether the factory is for a range, and not for a group.
func (f *Factory) IsRange() bool { return f.only || !f.within.IsEverything() }

// Load returns roughly the bytes of the shared caches that only ranges use.
func (p *Pool) Load() int64 {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.shared))
	p.mu.Unlock()
	bytes := 0.0
	for _, s := range all {
		if groups, counted := p.sharers(s.key); groups == 0 && !counted {
			counts, mean := p.measure(s.key, s.GetIndexer())
			for _, n := range counts {
				bytes += float64(n) * mean
			}
		}
	}
	return int64(bytes)
}

// sharers returns how many groups use an informer of the pool, and whether an only range counts it
// as its own.
func (p *Pool) sharers(key sharedKey) (groups int, counted bool) {
	p.mu.Lock()
	factories := slices.Collect(maps.Keys(p.factories))
	p.mu.Unlock()
	for _, f := range factories {
		f.mu.Lock()
		e, uses := f.informers[key]
		switch {
		case !uses || !f.within.IsEverything():
		case f.only:
			counted = counted || e.namespaced
		default:
			groups++
		}
		f.mu.Unlock()
	}
	return groups, counted
}

// measure returns how many objects a cache has, by namespace, and how many bytes one takes on
// average, including its place in the cache.
func (p *Pool) measure(key sharedKey, indexer cache.Indexer) (counts map[string]int64, mean float64) {
	keys := indexer.ListKeys()
	counts = map[string]int64{}
	lowest := make([]drawn, 0, sampled+1)
	names := 0
	for _, k := range keys {
		namespace, _, namespaced := strings.Cut(k, "/")
		if !namespaced {
			namespace = ""
		}
		counts[namespace]++
		names += len(k)
		lowest = draw(lowest, drawn{maphash.String(sampling, k), k})
	}
	measured, bytes := 0, int64(0)
	for _, d := range lowest {
		obj, there, err := indexer.GetByKey(d.key)
		if err != nil || !there {
			continue // deleted meanwhile
		}
		measured++
		bytes += p.ownSize(key, obj)
	}
	if measured == 0 {
		return counts, 0
	}
	return counts, float64(bytes)/float64(measured) + slotSize + float64(allocated(int64(names/len(keys))))
}

// ownSize returns the size of an object in the cache of an informer with this key, or 0 if the
// object belongs to another informer.
func (p *Pool) ownSize(key sharedKey, obj any) int64 {
	_, isMetadata := obj.(*metav1.PartialObjectMetadata)
	switch {
	case key.metadata && !isMetadata:
		return 0 // it belongs to the followed informer
	case key.slim:
		return sizeOf(p.config.Slim[key.resource](obj)) // A range may share it whole.
	}
	return sizeOf(obj)
}

// drawn is a key and its random number.
type drawn struct {
	number uint64
	key    string
}

// draw adds a key to those with the lowest numbers, at most sampled of them. A key has the same
// number each time, so the same objects are measured as long as they exist, and the estimate does
// not waver.
func draw(lowest []drawn, d drawn) []drawn {
	if len(lowest) == sampled && d.number >= lowest[sampled-1].number {
		return lowest
	}
	i, _ := slices.BinarySearchFunc(lowest, d.number, func(a drawn, number uint64) int {
		switch {
		case a.number < number:
			return -1
		case a.number > number:
			return 1
		}
		return 0
	})
	lowest = slices.Insert(lowest, i, d)
	return lowest[:min(len(lowest), sampled)]
}
