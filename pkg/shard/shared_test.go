package shard

import (
	"flag"
	"fmt"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var (
	rewrite    = flag.Bool("rewrite", false, "rewrite the golden files in testdata; review the diff")
	seedFlag   = flag.Uint64("seed", 0, "seed of the property tests; 0 means a new one each time")
	exhaustive = flag.Bool("exhaustive", false, "try every case in tests that otherwise sample")
)

// newRand returns a source of random numbers and logs its seed, which go test prints with a
// failure.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("Seed %d: repeat with -run '^%s$' -seed %d", seed, t.Name(), seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// checkGolden compares got with a file in testdata, or writes it with -rewrite.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with -rewrite", err)
	}
	if got != string(want) {
		t.Errorf("%s differs; members of two versions would disagree. Got:\n%s\nwant:\n%s", path, got, want)
	}
}

// checkError fails unless err contains all of the words, or is nil if there are none.
func checkError(t *testing.T, err error, words ...string) {
	t.Helper()
	if len(words) == 0 {
		if err != nil {
			t.Errorf("got error %v, want none", err)
		}
		return
	}
	if err == nil {
		t.Errorf("got no error, want one with %q", words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got error %q, want one with %q", err, w)
		}
	}
}

func testIDs(n int) []ID {
	ids := make([]ID, 0, n)
	for i := range n {
		ids = append(ids, ID{Ring: "namespaces", Name: fmt.Sprintf("%04d", i)})
	}
	return ids
}

// testMembers returns n names like those of a Deployment's pods.
func testMembers(r *rand.Rand, n int) []string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	seen, members := map[string]bool{}, make([]string, 0, n)
	for len(members) < n {
		suffix := make([]byte, 5)
		for i := range suffix {
			suffix[i] = letters[r.IntN(len(letters))]
		}
		if name := "flotilla-7d9f8b6c5-" + string(suffix); !seen[name] {
			seen[name] = true
			members = append(members, name)
		}
	}
	return members
}

// statefulMembers returns n names like those of a StatefulSet's pods.
func statefulMembers(n int) []string {
	members := make([]string, 0, n)
	for i := range n {
		members = append(members, fmt.Sprintf("flotilla-%d", i))
	}
	return members
}

func shuffled[T any](r *rand.Rand, in []T) []T {
	out := append([]T(nil), in...)
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// TestImports keeps the package pure, and usable in other people's controllers.
func TestImports(t *testing.T) {
	allowed := []string{"k8s.io/apimachinery/", "github.com/buraksezer/consistent", "github.com/cespare/xxhash/v2", "github.com/flotilla-kube/flotilla/internal/faults"}
	forbidden := map[string]string{
		"time": "no clock", "os": "no I/O", "net": "no I/O", "log": "no logs", "log/slog": "no logs", "sync": "no goroutines, so nothing to lock",
	}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("found no files: %v", err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if reason, bad := forbidden[path]; bad {
				t.Errorf("%s imports %s: %s in a pure package", name, path, reason)
			}
			standard := !strings.Contains(strings.Split(path, "/")[0], ".")
			found := standard
			for _, prefix := range allowed {
				found = found || strings.HasPrefix(path, prefix)
			}
			if !found {
				t.Errorf("%s imports %s, want only the standard library and %q", name, path, allowed)
			}
		}
	}
}
