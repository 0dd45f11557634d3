package scenario

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/bits"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// BalancedNames returns n names, "<prefix>-<i>-<suffix>", that lie evenly in the keyspace: the i-th
// has its hash in the i-th of n equal parts. So equal ranges have equal numbers of them. The same n
// gives the same names.
func BalancedNames(prefix string, n int) []string {
	names := make([]string, n)
	for i := range n {
		for try := uint64(0); names[i] == ""; try++ {
			// A part is found after n tries on average.
			name := fmt.Sprintf("%s-%d-%s", prefix, i, suffix(uint64(i), try))
			if part(shard.Hash(name), n) == i {
				names[i] = name
			}
		}
	}
	return names
}

// part returns in which of n equal parts of the keyspace a hash lies.
func part(hash uint64, n int) int {
	high, _ := bits.Mul64(hash, uint64(n))
	return int(high)
}

// suffix is eight hexadecimal digits that differ in all places from try to try: the last letters of
// a name hardly move its hash.
func suffix(i, try uint64) string {
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, [2]uint64{i, try})
	x := h.Sum64()
	x ^= x >> 32
	x *= 0x9e3779b97f4a7c15
	return fmt.Sprintf("%08x", x>>32)
}
