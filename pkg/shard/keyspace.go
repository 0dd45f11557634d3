package shard

import (
	"fmt"
	"math/bits"
)

// MaxShards is the maximum number of shards in one plan, all rings together, and in one call of
// Place or EqualRanges. At four shards a member it is enough for 256 members, and a plan of that
// size, as JSON and with the longest shard names, still fits into the 256 KiB that one object's
// annotations may take.
const MaxShards = 1024

// FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/.
const (
	fnvOffset uint64 = 14695981039346656037
	fnvPrime  uint64 = 1099511628211
)

// Hash returns the point of the keyspace where a namespace lies: the 64-bit FNV-1a of its name, the
// hash that k8s.io/apimachinery/pkg/sharding applies to object.metadata.namespace. Namespace
// objects have no namespace themselves; hash their name. Hash("") is 0xcbf29ce484222325, where the
// API server puts every other cluster-scoped object.
func Hash(namespace string) uint64 {
	// Written out instead of using hash/fnv, so that a filter that hashes every event allocates
	// nothing.
	h := fnvOffset
	for i := range len(namespace) {
		h ^= uint64(namespace[i])
		h *= fnvPrime
	}
	return h
}

// EqualShards returns the shards of a ring's first plan: n equal ranges, named by two digits or
// more in ascending order. Its error is that of EqualRanges.
func EqualShards(ring string, n int) ([]Shard, error) {
	ranges, err := EqualRanges(n)
	if err != nil {
		return nil, err
	}
	digits := max(2, len(fmt.Sprint(n-1)))
	shards := make([]Shard, n)
	for i, r := range ranges {
		shards[i] = Shard{ID: ID{Ring: ring, Name: fmt.Sprintf("%0*d", digits, i)}, Range: r}
	}
	return shards, nil
}

// EqualRanges cuts the keyspace into n ranges in ascending order whose widths differ by at most one
// hash value. It returns an error unless n is 1 to MaxShards. Equal ranges hold equal shares of the
// hash values, not of the namespaces: use it for a first plan, before the namespaces are known.
func EqualRanges(n int) ([]Range, error) {
	if n < 1 || n > MaxShards {
		return nil, fmt.Errorf("number of ranges %d: must be 1 to %d", n, MaxShards)
	}
	ranges := make([]Range, n)
	for i := range ranges {
		// floor(i * 2^64 / n); the division cannot overflow since i < n.
		ranges[i].Start, _ = bits.Div64(uint64(i), 0, uint64(n))
		if i > 0 {
			ranges[i-1].End = ranges[i].Start
		}
	}
	return ranges, nil
}
