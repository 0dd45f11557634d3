package skew

import (
	"strings"
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// buildOf returns the build of a version. It is cached: each test needs it many thousand times.
func buildOf(version int) Build { return builds[version-1] }

// knownOf returns what members of a version publish.
func knownOf(version int) Known { return knowns[version-1] }

var (
	builds = []Build{newBuild(1), newBuild(2), newBuild(3), newBuild(4)}
	knowns = []Known{newBuild(1).Known(), newBuild(2).Known(), newBuild(3).Known(), newBuild(4).Known()}
)

// newBuild makes builds of four versions. b begins in v2, and r ends in v3. m moves from ranges to
// a group in v2, which can run it in both scopes; v4 cannot. n moves the other way in v3.
func newBuild(version int) Build {
	both := func(first, second shard.Scope) []shard.Scope { return []shard.Scope{first, second} }
	namespaced, cluster := []shard.Scope{shard.ScopeNamespaced}, []shard.Scope{shard.ScopeCluster}
	b := Build{
		Version: "v1." + string(rune('0'+version)) + ".0",
		Rings:   map[shard.Scope]string{shard.ScopeNamespaced: "namespaces", shard.ScopeCluster: "cluster"},
		Controllers: []Controller{
			{Name: "jobs", Scopes: namespaced}, {Name: "nodes", Scopes: cluster, Group: "nodes"},
			{Name: "asked", Scopes: cluster, Group: "nodes", OnRequest: true},
		},
	}
	if version <= 2 {
		b.Controllers = append(b.Controllers, Controller{Name: "r", Scopes: namespaced}, Controller{Name: "rr", Scopes: cluster, Group: "old"})
	}
	if version >= 2 {
		b.Controllers = append(b.Controllers, Controller{Name: "b", Scopes: namespaced}, Controller{Name: "bb", Scopes: cluster, Group: "new"})
	}
	m := Controller{Name: "m", Scopes: namespaced, Group: "nodes"}
	switch {
	case version == 2 || version == 3:
		m.Scopes, m.Earlier = both(shard.ScopeCluster, shard.ScopeNamespaced), shard.ScopeNamespaced
	case version > 3:
		m.Scopes = cluster
	}
	n := Controller{Name: "n", Scopes: cluster, Group: "n"}
	if version >= 3 {
		n.Scopes, n.Earlier = both(shard.ScopeNamespaced, shard.ScopeCluster), shard.ScopeCluster
	}
	b.Controllers = append(b.Controllers, m, n)
	return b
}

// planOf returns the first plan of a build.
func planOf(t *testing.T, b Build) shard.Plan {
	t.Helper()
	plan := shard.Plan{Generation: 1, Rings: []shard.Ring{{
		Name: "namespaces", Scope: shard.ScopeNamespaced, Controllers: []string{"jobs"},
		Shards: []shard.Shard{{ID: shard.ID{Ring: "namespaces", Name: "0"}, Range: shard.Range{End: 1 << 63}, Home: "one"}, {ID: shard.ID{Ring: "namespaces", Name: "1"}, Range: shard.Range{Start: 1 << 63}}},
	}, {
		Name: "cluster", Scope: shard.ScopeCluster,
		Shards: []shard.Shard{{ID: shard.ID{Ring: "cluster", Name: "nodes"}, Group: "nodes", Controllers: []string{"nodes"}, Weight: 7}},
	}}}
	next, _, err := b.Adapt(plan, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func TestKnown(t *testing.T) {
	for _, version := range []int{1, 2, 3} {
		b := buildOf(version)
		text := b.Known().String()
		k, err := ParseKnown(text)
		if err != nil {
			t.Fatal(err)
		}
		if k.Version != b.Version || k.String() != text {
			t.Errorf("%q came back as %q", text, k)
		}
		for _, name := range []string{"jobs", "nodes", "asked", "r", "rr", "b", "bb", "m", "n", "x", ""} {
			for _, scope := range []shard.Scope{shard.ScopeNamespaced, shard.ScopeCluster} {
				if k.Runs(name, scope) != b.Runs(name, scope) {
					t.Errorf("version %d: %s in scope %s: the build says %v, what it publishes %v", version, name, scope, b.Runs(name, scope), k.Runs(name, scope))
				}
			}
		}
	}
	if one, two := buildOf(1).Known(), buildOf(2).Known(); one.Digest == two.Digest {
		t.Errorf("both builds have digest %s", one.Digest)
	}
	if text := (Build{}).Known().String(); text != "" || !(Build{}).Runs("x", shard.ScopeCluster) || !(Build{}).Known().Runs("x", shard.ScopeCluster) {
		t.Errorf("a build that knows everything publishes %q", text)
	}
	for _, junk := range []string{"", "v1", "v1 0 !", "v1 0 abcde", "v1 0 abc x", strings.Repeat("x", 1000)} {
		if k, err := ParseKnown(junk); err == nil || len(err.Error()) > 200 {
			t.Errorf("%q is read as %q: %v", junk, k, err)
		}
	}
}

func TestNewer(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"v1.38.0", "v1.37.1", true}, {"v1.37.1", "v1.38.0", false}, {"v1.37.1", "v1.37.1", false},
		{"v1.37.10", "v1.37.9", true}, {"v1.37.1-flotilla.2", "v1.37.1-flotilla.1", true}, {"v1.38.0-alpha.1", "v1.37.9", true},
		{"v1.37.1+abc", "v1.37.1", false}, {"v1.37.1", "junk", true}, {"junk", "v1.37.1", false}, {"junk", "", false}, {"v1.38.0", "", true},
	} {
		if got := Newer(tc.a, tc.b); got != tc.want {
			t.Errorf("Newer(%q, %q) = %v", tc.a, tc.b, got)
		}
	}
}

func TestApt(t *testing.T) {
	namespaces, _ := planOf(t, buildOf(1)).Ring("namespaces")
	cluster, _ := planOf(t, buildOf(2)).Ring("cluster")
	for _, tc := range []struct {
		what string
		k    Known
		ring shard.Ring
		want bool
	}{
		{"its own", buildOf(1).Known(), namespaces, true},
		{"lacks r, and can run m there", buildOf(3).Known(), namespaces, true},
		{"has m in a group alone", buildOf(4).Known(), namespaces, false},
		{"lacks bb, and has m in ranges alone", buildOf(1).Known(), cluster, false},
		{"knows nothing", Known{}, cluster, true},
		{"knows everything", Build{}.Known(), cluster, true},
	} {
		if got := tc.k.Apt(tc.ring); got != tc.want {
			t.Errorf("%s: %v", tc.what, got)
		}
	}
}
