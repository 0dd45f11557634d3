package shard

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestIDText(t *testing.T) {
	long := strings.Repeat("x", 63)
	for _, id := range []ID{{"namespaces", "00"}, {"cluster", "nodes"}, {"0", "g1-a"}, {long, long}} {
		checkError(t, id.validate())
		if got, err := ParseID(id.String()); got != id || err != nil {
			t.Errorf("ParseID(%q) = %v, %v", id, got, err)
		}
	}
	for s, words := range map[string][]string{
		"":                 {`shard ""`, "slash"},
		"namespaces":       {`shard "namespaces"`, "slash"},
		"/":                {`ring ""`, `shard name ""`},
		"ns/":              {`shard name ""`},
		"/00":              {`ring ""`},
		"ns/a/b":           {`shard name "a/b"`, "lower case"},
		"Ns/00":            {`ring "Ns"`, "lower case"},
		"ns/a_b":           {`shard name "a_b"`},
		"ns/-a":            {`shard name "-a"`},
		"ns/a.b":           {`shard name "a.b"`},
		"a-b/c":            {`ring "a-b"`, "must not contain '-'"},
		"member/x":         {`ring "member"`, "reserved"},
		"plan/x":           {`ring "plan"`, "reserved"},
		"ns/" + long + "x": {"63"},
		" ns/a":            {`ring " ns"`},
	} {
		_, err := ParseID(s)
		checkError(t, err, words...)
	}
}

// TestLeaseNamesAreUnique checks the purpose of the rule about hyphens: in any fleet, ring-shard
// names at most one of two valid IDs.
func TestLeaseNamesAreUnique(t *testing.T) {
	parts := []string{"a", "b", "a-b", "b-a", "a-b-a", "member", "plan", "member-a", "plan-a"}
	leases := map[string]ID{}
	valid := 0
	for _, ring := range parts {
		for _, name := range parts {
			id := ID{ring, name}
			if id.validate() != nil {
				continue
			}
			valid++
			lease := "fleet-" + ring + "-" + name
			if other, used := leases[lease]; used {
				t.Errorf("%s and %s share the Lease %s", id, other, lease)
			}
			leases[lease] = id
			if strings.HasPrefix(lease, "fleet-member-") || lease == "fleet-plan" {
				t.Errorf("%s has the Lease %s of a member or the plan", id, lease)
			}
		}
	}
	if valid != 2*len(parts) {
		t.Errorf("%d IDs are valid, want those of rings a and b: %d", valid, 2*len(parts))
	}
}

func TestIDCompare(t *testing.T) {
	sorted := []ID{{"a", "b"}, {"a", "c"}, {"aa", "a"}, {"b", "a"}}
	for i, a := range sorted {
		for j, b := range sorted {
			if got, want := a.Compare(b), min(1, max(-1, i-j)); got != want {
				t.Errorf("%s compared with %s: %d, want %d", a, b, got, want)
			}
		}
	}
	if !slices.IsSortedFunc(sorted, ID.Compare) {
		t.Error("the table is not sorted")
	}
}

func TestShardJSON(t *testing.T) {
	for want, s := range map[string]Shard{
		`{"ring":"ns","name":"00","range":"0x0000000000000000-0x10000000000000000"}`: {ID: ID{"ns", "00"}},
		`{"ring":"ns","name":"01","range":"0x0000000000000001-0x0000000000000002"}`:  {ID: ID{"ns", "01"}, Range: Range{1, 2}},
		`{"ring":"cluster","name":"nodes","group":"nodes","controllers":["a","b"]}`:  {ID: ID{"cluster", "nodes"}, Group: "nodes", Controllers: []string{"a", "b"}},
	} {
		data, err := json.Marshal(s)
		if err != nil || string(data) != want {
			t.Errorf("%s as JSON: %s, %v; want %s", s, data, err, want)
		}
		var back Shard
		if err := json.Unmarshal([]byte(want), &back); err != nil || !reflect.DeepEqual(back, s) {
			t.Errorf("from JSON %s: %+v, %v; want %+v", want, back, err, s)
		}
		if got, want := s.Namespaced(), s.Group == ""; got != want {
			t.Errorf("%s: Namespaced() = %v, want %v", s, got, want)
		}
	}
	if _, err := json.Marshal(Shard{Group: "g", Range: Range{1, 2}}); err == nil {
		t.Error("a shard with range and group was written as JSON")
	}
	for in, words := range map[string][]string{
		`{"ring":"ns","name":"00"}`:                                      {`"ns/00"`, "exactly one of range and group"},
		`{"ring":"ns","name":"00","range":null}`:                         {"exactly one"},
		`{"ring":"ns","name":"00","range":""}`:                           {"hyphen"},
		`{"ring":"ns","name":"00","group":""}`:                           {"exactly one"},
		`null`:                                                           {"exactly one"},
		`{"ring":"ns","name":"00","mass":1}`:                             {"mass"},
		`{"range":"0x0000000000000000-0x10000000000000000","group":"g"}`: {"exactly one"},
	} {
		s := Shard{ID: ID{"kept", "kept"}}
		checkError(t, json.Unmarshal([]byte(in), &s), words...)
		if s.Ring != "kept" {
			t.Errorf("%s: overwrote the shard despite its error", in)
		}
	}
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"", "/", "namespaces/00", "a-b/c", "member/x", "a/b/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err != nil {
			return
		}
		if id.String() != s {
			t.Errorf("ParseID accepts %q, which is %q", s, id)
		}
		checkError(t, id.validate())
		if _, err := Place([]ID{id}, []string{"m"}); err != nil {
			t.Errorf("Place refuses what ParseID accepts: %v", err)
		}
	})
}
