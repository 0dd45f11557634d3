package scenario

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/bits"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// BalancedNames returns n names, "<prefix>-<i>-<suffix>", that are evenly spread in the keyspace:
// the i-th has its hash in the i-th of n equal parts, so equal ranges have equal numbers of names.
// The same n gives the same names.
func BalancedNames(prefix string, n int) []string {
	names := make([]string, n)
	for i := range n {
		for try := uint64(0); names[i] == ""; try++ {
			// Finding a name for a part takes n tries on average.
			name := fmt.Sprintf("%s-%d-%s", prefix, i, suffix(uint64(i), try))
			if part(shard.Hash(name), n) == i {
				names[i] = name
			}
		}
	}
	return names
}

// part returns the index of the hash's part, of n equal parts of the keyspace.
func part(hash uint64, n int) int {
	high, _ := bits.Mul64(hash, uint64(n))
	return int(high)
}

// suffix returns eight hexadecimal digits that differ in all places from try to try, because the
// last letters of a name hardly move its hash.
func suffix(i, try uint64) string {
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, [2]uint64{i, try})
	x := h.Sum64()
	x ^= x >> 32
	x *= 0x9e3779b97f4a7c15
	return fmt.Sprintf("%08x", x>>32)
}
