package manager

import (
	"strings"

	"k8s.io/client-go/tools/cache"
)

// namedIndexer has the indexes of one controller: another one may index the same cache by the same
// field, with another function.
type namedIndexer struct {
	cache.Indexer
	owner string
}

// name returns the name of an index in the cache.
func (n namedIndexer) name(index string) string {
	if index == cache.NamespaceIndex {
		return index
	}
	return n.prefix() + index
}

// prefix ends with a character that no controller's name has, so no prefix begins another one.
func (n namedIndexer) prefix() string { return n.owner + "/" }

// named returns the indexers under their names in the cache, which also has an index of namespaces.
func (n namedIndexer) named(indexers cache.Indexers) cache.Indexers {
	named := make(cache.Indexers, len(indexers))
	for index, f := range indexers {
		if index != cache.NamespaceIndex {
			named[n.name(index)] = f
		}
	}
	return named
}

// Index implements cache.Indexer.
func (n namedIndexer) Index(index string, obj any) ([]any, error) {
	return n.Indexer.Index(n.name(index), obj)
}

// IndexKeys implements cache.Indexer.
func (n namedIndexer) IndexKeys(index, value string) ([]string, error) {
	return n.Indexer.IndexKeys(n.name(index), value)
}

// ListIndexFuncValues implements cache.Indexer.
func (n namedIndexer) ListIndexFuncValues(index string) []string {
	return n.Indexer.ListIndexFuncValues(n.name(index))
}

// ByIndex implements cache.Indexer.
func (n namedIndexer) ByIndex(index, value string) ([]any, error) {
	return n.Indexer.ByIndex(n.name(index), value)
}

// GetIndexers implements cache.Indexer.
func (n namedIndexer) GetIndexers() cache.Indexers {
	own := cache.Indexers{}
	for name, f := range n.Indexer.GetIndexers() {
		if index, ours := strings.CutPrefix(name, n.prefix()); ours || name == cache.NamespaceIndex {
			own[index] = f
		}
	}
	return own
}

// AddIndexers implements cache.Indexer.
func (n namedIndexer) AddIndexers(indexers cache.Indexers) error {
	return n.Indexer.AddIndexers(n.named(indexers))
}
