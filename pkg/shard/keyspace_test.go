package shard

import (
	"fmt"
	"hash/fnv"
	"math/big"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/sharding"
)

func TestHashIsUpstreams(t *testing.T) {
	r := newRand(t)
	names := []string{"", "a", "kube-system", "ns-0", "ns-999", "team-1", "\x00", "\xff\xfe", "é"}
	for range 1000 {
		names = append(names, randomBytes(r, 70))
	}
	for _, name := range names {
		if got, want := fmt.Sprintf("%016x", Hash(name)), sharding.HashField(name); got != want {
			t.Errorf("Hash(%q) = %s, upstream's is %s", name, got, want)
		}
		h := fnv.New64a()
		h.Write([]byte(name))
		if got, want := Hash(name), h.Sum64(); got != want {
			t.Errorf("Hash(%q) = %x, hash/fnv's is %x", name, got, want)
		}
	}
	if got := Hash(""); got != 0xcbf29ce484222325 {
		t.Errorf("Hash of nothing = %x, want the documented value", got)
	}
}

func randomBytes(r *rand.Rand, maxLen int) string {
	b := make([]byte, r.IntN(maxLen+1))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

func TestHashAllocatesNothing(t *testing.T) {
	name := "a-namespace-of-some-length"
	var sum uint64
	if n := testing.AllocsPerRun(100, func() { sum += Hash(name) }); n != 0 {
		t.Errorf("Hash allocated %v times, want 0 (sum %d)", n, sum)
	}
}

func TestEqualRanges(t *testing.T) {
	keyspace := new(big.Int).Lsh(big.NewInt(1), 64)
	for n := 1; n <= MaxShards; n++ {
		ranges, err := EqualRanges(n)
		if err != nil || len(ranges) != n {
			t.Fatalf("EqualRanges(%d) = %d ranges, %v", n, len(ranges), err)
		}
		least := new(big.Int).Div(keyspace, big.NewInt(int64(n)))
		next := new(big.Int)
		for i, r := range ranges {
			checkError(t, r.Validate())
			if start := new(big.Int).SetUint64(r.Start); start.Cmp(next) != 0 {
				t.Fatalf("EqualRanges(%d)[%d] = %s, want start %x", n, i, r, next)
			}
			end := bigEnd(r)
			width := new(big.Int).Sub(end, next)
			if d := new(big.Int).Sub(width, least); d.Sign() < 0 || d.Cmp(big.NewInt(1)) > 0 {
				t.Errorf("EqualRanges(%d)[%d] = %s: width %x, want %x or one more", n, i, r, width, least)
			}
			next = end
		}
		if next.Cmp(keyspace) != 0 {
			t.Errorf("EqualRanges(%d) ends at %x, want 2^64", n, next)
		}
	}
	if one, _ := EqualRanges(1); !one[0].IsEverything() {
		t.Errorf("EqualRanges(1) = %s, want everything", one[0])
	}
}

func bigEnd(r Range) *big.Int {
	if r.End == 0 {
		return new(big.Int).Lsh(big.NewInt(1), 64)
	}
	return new(big.Int).SetUint64(r.End)
}

func TestEqualRangesRefuses(t *testing.T) {
	for _, n := range []int{-1, 0, MaxShards + 1} {
		ranges, err := EqualRanges(n)
		checkError(t, err, fmt.Sprint(n), "1 to 1024")
		if ranges != nil {
			t.Errorf("EqualRanges(%d) returned ranges with its error", n)
		}
	}
}
