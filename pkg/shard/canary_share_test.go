package shard

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestPartOfShare checks that the part has the share that is returned, close to the requested one,
// and leaves out what it must.
func TestPartOfShare(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 23))
		weights := map[string]int64{"kube-system": 50}
		for range 100 + random.IntN(400) {
			weights[fmt.Sprintf("%x", random.Uint64())] = 1 + random.Int64N(30)
		}
		ranges, err := EqualRanges(2 + random.IntN(20))
		if err != nil {
			t.Fatal(err)
		}
		ring := Ring{Name: "namespaces"}
		for _, i := range random.Perm(len(ranges)) {
			ring.Shards = append(ring.Shards, Shard{Range: ranges[i]})
		}
		share := 0.02 + 0.4*random.Float64()
		part, has, found := ring.PartOfShare(NewCensus(weights), share, Hash("kube-system"))
		if !found {
			t.Fatalf("seed %d: nothing found for %.3f", seed, share)
		}
		sum, total := int64(0), int64(0)
		for name, weight := range weights {
			total += weight
			if part.ContainsNamespace(name) {
				sum += weight
			}
		}
		if got := float64(sum) / float64(total); math.Abs(got-has) > 1e-9 || math.Abs(got-share) > 0.03 {
			t.Errorf("seed %d: %s has %.3f, reported as %.3f, want %.3f", seed, part, got, has, share)
		}
		if part.ContainsNamespace("kube-system") {
			t.Errorf("seed %d: %s has kube-system", seed, part)
		}
	}
}

// TestPartOfShareCutsNothing checks that a shard with the requested share is not cut, and that an
// empty census gives no part.
func TestPartOfShareCutsNothing(t *testing.T) {
	ring := Ring{Shards: []Shard{{Range: Range{End: 100}}, {Range: Range{Start: 100, End: 200}}, {Range: Range{Start: 200}}}}
	census := Census{{Hash: 10, Weight: 50, Namespaces: 1}, {Hash: 110, Weight: 10, Namespaces: 1}, {Hash: 120, Weight: 10, Namespaces: 1}, {Hash: 250, Weight: 30, Namespaces: 1}}
	for share, want := range map[float64]Range{0.2: {Start: 100, End: 200}, 0.1: {Start: 100, End: 120}, 0.3: {Start: 200}, 0.5: {End: 100}} {
		if part, has, found := ring.PartOfShare(census, share); !found || part != want || math.Abs(has-share) > 1e-9 {
			t.Errorf("for %.1f: %s with %.2f, %t, want %s", share, part, has, found, want)
		}
	}
	if part, has, found := ring.PartOfShare(census, 0.01); found {
		t.Errorf("found %s with %.2f", part, has)
	}
	if _, _, found := ring.PartOfShare(nil, 0.1); found {
		t.Error("found a part of nothing")
	}
}
