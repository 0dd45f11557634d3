package shard

import (
	"encoding/base64"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// word returns a name of that length that ends in own random letters, as pods' names do.
func word(r *rand.Rand, length, own int) string {
	b := slices.Repeat([]byte("x"), length)
	for i := range own {
		b[length-1-i] = byte('a' + r.IntN(26))
	}
	return string(b)
}

// largestPlan returns a plan with as many shards as allowed, with pins, homes and weights. Names
// are as long as allowed, and each ends in own random letters.
func largestPlan(t *testing.T, r *rand.Rand, own int) Plan {
	t.Helper()
	p := testPlan(t, MaxShards-2)
	var members []string
	for range MaxShards / 4 {
		members = append(members, word(r, 253, own))
	}
	ring := &p.Rings[0]
	ring.Name = strings.Repeat("r", 63)
	for i := range ring.Shards {
		s := &ring.Shards[i]
		s.Ring, s.Name = ring.Name, word(r, 63, own)
		s.Pin, s.Home = members[r.IntN(len(members))], members[r.IntN(len(members))]
		s.Weight = math.MaxInt64 - r.Int64N(1<<40)
		if i > 0 {
			s.Range.Start += r.Uint64N(1 << 40)
			ring.Shards[i-1].Range.End = s.Range.Start
		}
	}
	for i := range 100 {
		ring.Controllers = append(ring.Controllers, fmt.Sprintf("%s-%03d", strings.Repeat("z", 60), i))
	}
	checkError(t, p.Validate())
	return p
}

// TestLargestPlanFitsAnnotation compares a plan of MaxShards with the API server's limit on an
// object's annotations, which hold the plan twice.
func TestLargestPlanFitsAnnotation(t *testing.T) {
	p := largestPlan(t, newRand(t), 10)
	packed, err := p.Packed()
	checkError(t, err)
	document, err := p.Document()
	checkError(t, err)
	t.Logf("%d shards take %d bytes, packed %d of %d", len(p.Shards()), len(document), len(packed), MaxPacked)
	if len(packed) > MaxPacked {
		t.Errorf("%d shards take %d bytes, want at most %d", len(p.Shards()), len(packed), MaxPacked)
	}
	// Names without repeated parts cannot be compressed.
	_, err = largestPlan(t, newRand(t), 63).Packed()
	checkError(t, err, "1024 shards", fmt.Sprint(MaxPacked), "shorten the names")
}

func TestPackedRoundTrip(t *testing.T) {
	r := newRand(t)
	for range 300 {
		p := randomCase(t, r).plan
		text, err := p.Packed()
		checkError(t, err)
		if again, _ := p.Packed(); again != text {
			t.Fatalf("packed once %q, and once %q", text, again)
		}
		back, err := ParsePlan([]byte(text))
		if err != nil || !reflect.DeepEqual(back, p) {
			t.Fatalf("back from %s\n%+v, %v; want %+v", text, back, err, p)
		}
	}
}

func TestParsePlanRefusesPacked(t *testing.T) {
	good, err := documentPlan(t).Packed()
	checkError(t, err)
	bomb := Plan{Generation: 1, Rings: []Ring{{Name: strings.Repeat("r", 5<<20)}}}
	swollen, err := bomb.Packed()
	checkError(t, err)
	for text, words := range map[string][]string{
		"gzip:":                       {"not packed"},
		"gzip:junk":                   {"not packed"},
		good[:len(good)/2]:            {"not packed"},
		"gzip:" + pack(t, `{"plan":`): {"not JSON"},
		"gzip:" + pack(t, `{}`):       {"generation"},
		"gzip:" + pack(t, `{"plan":{"generation":1,"rings":[{"name":"r","scope":"namespaced","controllers":["c"],"shards":[{"ring":"r","name":"s","home":"1","range":"*"}]}]},"members":["a"]}`): {"range"},
		swollen: {"when unpacked"},
	} {
		_, err := ParsePlan([]byte(text))
		checkError(t, err, words...)
	}
	p := documentPlan(t)
	strange := strings.Replace(unpacked(t, p), `"pin":"`, `"pin":"9`, 1)
	_, err = ParsePlan([]byte("gzip:" + pack(t, strange)))
	checkError(t, err, `member "9`, "must be an index of")
}

// pack compresses a text as Packed does.
func pack(t *testing.T, text string) string {
	t.Helper()
	packed, err := packText([]byte(text))
	checkError(t, err)
	return strings.TrimPrefix(packed, packedPrefix)
}

// unpacked returns the text that Packed has compressed.
func unpacked(t *testing.T, p Plan) string {
	t.Helper()
	packed, err := p.Packed()
	checkError(t, err)
	if _, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(packed, packedPrefix)); err != nil {
		t.Error(err)
	}
	text, err := unpackText([]byte(strings.TrimPrefix(packed, packedPrefix)))
	checkError(t, err)
	return string(text)
}
