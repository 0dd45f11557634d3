package sky

import (
	"strings"
	"testing"
	"time"
)

// at returns a call that begins and ends at the given seconds. Writes take effect when they end.
func at(begin, end int, client, method, balancer string) Call {
	t0 := time.Unix(0, 0)
	c := Call{
		Client: client, Method: method, UID: "u", Balancer: balancer, Status: 200,
		Begin: t0.Add(time.Duration(begin) * time.Second),
		End:   t0.Add(time.Duration(end) * time.Second),
	}
	if c.Writes() {
		c.Effect = c.End
	}
	return c
}

func (c Call) by(shard string, term int) Call {
	c.Shard, c.Term = shard, term
	return c
}

func TestJudge(t *testing.T) {
	alive, gone := true, false
	tests := []struct {
		what  string
		calls []Call
		alive bool
		want  string // Part of the only line; "" for none.
	}{
		{
			"one after the other",
			[]Call{
				at(0, 1, "a", "GET", ""), at(1, 2, "a", "POST", "1"), at(3, 4, "b", "GET", ""),
				at(4, 5, "b", "PUT", "1"),
			},
			alive, "",
		},
		{
			"deleted and made again",
			[]Call{
				at(0, 1, "a", "POST", "1"), at(1, 2, "a", "DELETE", "1"),
				at(2, 3, "b", "POST", "2"),
			},
			alive, "",
		},
		{
			"two created", []Call{at(0, 1, "a", "POST", "1"), at(2, 3, "b", "POST", "2")}, alive,
			"duplicate",
		},
		{
			"one client creates two",
			[]Call{at(0, 1, "a", "POST", "1"), at(0, 2, "a", "POST", "2")}, alive, "duplicate",
		},
		{"reads overlap", []Call{at(0, 2, "a", "GET", ""), at(1, 3, "b", "GET", "")}, alive, ""},
		{
			"a read and a write overlap",
			[]Call{at(0, 2, "a", "GET", ""), at(1, 3, "b", "POST", "1")}, alive, "two at work",
		},
		{
			"a write that has not ended",
			[]Call{{Client: "a", Method: "POST", UID: "u"}, at(9, 10, "b", "GET", "")}, alive,
			"two at work",
		},
		{
			"writes of one client overlap",
			[]Call{at(0, 2, "a", "PUT", "1"), at(1, 3, "a", "PUT", "1")}, alive, "",
		},
		{
			"an earlier owner comes back",
			[]Call{
				at(0, 1, "a", "POST", "1").by("s", 3), at(2, 3, "b", "PUT", "1").by("s", 4),
				at(4, 5, "a", "PUT", "1").by("s", 3),
			},
			alive, "term 3) after",
		},
		{
			"the shard comes back",
			[]Call{
				at(0, 1, "a", "POST", "1").by("s", 3), at(2, 3, "b", "PUT", "1").by("s", 4),
				at(4, 5, "a", "PUT", "1").by("s", 5),
			},
			alive, "",
		},
		{"left behind", []Call{at(0, 1, "a", "POST", "1")}, gone, "leak"},
		{"cleaned up", []Call{at(0, 1, "a", "POST", "1"), at(1, 2, "b", "DELETE", "1")}, gone, ""},
	}
	for _, tc := range tests {
		got := Judge(tc.calls, func(string) bool { return tc.alive })
		switch {
		case tc.want == "" && len(got) > 0:
			t.Errorf("%s: %q, want nothing", tc.what, got)
		case tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want)):
			t.Errorf("%s: %q, want one line with %q", tc.what, got, tc.want)
		}
	}
}

func TestCallersAreIdentified(t *testing.T) {
	var c Call
	c.identify("sky flotilla (member=a_x-1; shard=namespaces/03; term=7)")
	if c.Member != "a_x-1" || c.Shard != "namespaces/03" || c.Term != 7 {
		t.Errorf("got %+v", c)
	}
}
