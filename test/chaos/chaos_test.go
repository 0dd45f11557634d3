package main

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/controllers/catalogue"
)

func TestScheduleDealsAll(t *testing.T) {
	names := faultNames(anyFault)
	one, two := &schedule{names: names, random: newRandom(7, scheduleChance)}, &schedule{names: names, random: newRandom(7, scheduleChance)}
	for range 3 {
		var dealt []string
		for range names {
			name := one.next()
			if again := two.next(); again != name {
				t.Fatalf("the same seed deals %s and %s", name, again)
			}
			dealt = append(dealt, name)
		}
		slices.Sort(dealt)
		if !slices.Equal(dealt, slices.Sorted(slices.Values(names))) {
			t.Errorf("dealt %v, want each of %v once", dealt, names)
		}
	}
}

func TestEveryShardHasACanary(t *testing.T) {
	for _, shards := range []int{1, 3, 16, 64} {
		plan, err := catalogue.DefaultPlan(shards)
		if err != nil {
			t.Fatal(err)
		}
		names, homes := spreadNamespaces(plan)
		if len(names) != shards || len(homes) != shards {
			t.Errorf("%d names in %d homes for %d shards", len(names), len(homes), shards)
		}
		for name, id := range homes {
			if s, _ := plan.Shard(id); !s.Range.ContainsNamespace(name) {
				t.Errorf("%s is not in %s", name, id)
			}
		}
	}
}

func TestFlags(t *testing.T) {
	for _, test := range []struct {
		args string
		want string // in the error; the list of faults if it begins with "="
	}{
		{"-faults kill,cut", "=kill cut"},
		{"-faults all -target stock", "=kill stop stop-in-burst rolling"},
		{"-faults cut -target stock", `"cut" is not one of kill`},
		{"-faults flood", `"flood" is not one of`},
		{"-target both", `-target is "both"`},
		{"-replicas 1", "-replicas is 1"},
		{"-load 0", "-load is 0"},
		{"-rounds 2 -minutes 3", "exclude each other"},
		{"-shards 0", "-shards"},
		{"-renew-deadline 7s", "RenewDeadline"},
		{"more", `unexpected argument "more"`},
	} {
		o, err := parseFlags(strings.Fields(test.args), io.Discard)
		if want, ok := strings.CutPrefix(test.want, "="); ok {
			if err != nil || strings.Join(o.faults, " ") != want {
				t.Errorf("%s: %v, %v, want %s", test.args, o.faults, err, want)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.args, err, test.want)
		}
	}
	if o, err := parseFlags([]string{"-target", "stock"}, io.Discard); err != nil || o.replicas != 2 {
		t.Errorf("stock with %d replicas, %v, want 2", o.replicas, err)
	}
}

func TestTamperingExcusesItsShardOnly(t *testing.T) {
	tampered := tampering{lease: testLease, shard: testShard, from: epoch, to: epoch.Add(time.Minute), ended: epoch.Add(10 * time.Second)}
	uri := "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/" + testLease
	for _, test := range []struct {
		name string
		v    audit.Violation
		want bool
	}{
		{"its Lease", audit.Violation{Kind: audit.LeaseDeleted, URI: uri, Time: epoch.Add(time.Second)}, true},
		{"taken from a live holder", audit.Violation{Kind: audit.HolderNotEnded, URI: uri, Time: epoch}, true},
		{"a write after the claim ended", audit.Violation{Kind: audit.WriterEnded, Detail: testShard.String(), Time: epoch}, false},
		{"a write for it", audit.Violation{Kind: audit.NotHolder, Detail: "a_1 for namespaces/00, term 1: no", Time: epoch}, true},
		{"a write for it by a holder that has not noticed", audit.Violation{Kind: audit.NotHolder, Detail: "a_1 for namespaces/00, term 1: no", Time: epoch.Add(11 * time.Second)}, false},
		{"two at work on it for long", audit.Violation{Kind: audit.Overlapping, Detail: testShard.String(), Time: epoch.Add(11 * time.Second)}, false},
		{"taken early much later", audit.Violation{Kind: audit.TakenEarly, URI: uri, Time: epoch.Add(11 * time.Second)}, true},
		{"too late", audit.Violation{Kind: audit.LeaseDeleted, URI: uri, Time: epoch.Add(time.Hour)}, false},
		{"another shard", audit.Violation{Kind: audit.NotHolder, Detail: "a_1 for namespaces/01, term 1: no", Time: epoch}, false},
		{"another rule", audit.Violation{Kind: audit.WrongRange, Detail: "namespaces/00", Time: epoch}, false},
	} {
		if got := tampered.excuses(test.v); got != test.want {
			t.Errorf("%s: excused %t, want %t", test.name, got, test.want)
		}
	}
}

func TestBrokenLinesAreLeftOut(t *testing.T) {
	var out bytes.Buffer
	broken, err := wholeLines(&out, strings.NewReader("{\"a\":1}\n{\"b\":{\"c\":2}\n{\"d\":4}\n{\"e\""))
	if err != nil || broken != 2 || out.String() != "{\"a\":1}\n{\"d\":4}\n" {
		t.Errorf("%d broken, %v, left %q", broken, err, out.String())
	}
}

func TestWatchesAreTold(t *testing.T) {
	for url, want := range map[string]bool{
		"https://x/api/v1/pods?watch=true&resourceVersion=3": true,
		"https://x/api/v1/pods?watch=1":                      true,
		"https://x/api/v1/pods?watch=false":                  false,
		"https://x/api/v1/pods":                              false,
	} {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := isWatch(r); got != want {
			t.Errorf("%s: %t, want %t", url, got, want)
		}
	}
}
