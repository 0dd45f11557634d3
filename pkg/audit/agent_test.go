package audit_test

import (
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

func TestParseAgent(t *testing.T) {
	claim := audit.Identity{Member: a, Shard: shard.ID{Ring: "namespaces", Name: "03"}, Term: 7}
	tests := map[string]struct {
		agent  string
		want   audit.Identity
		marked bool
		fails  bool
	}{
		"fenced":           {agent: agent(a, "namespaces/03", 7), want: claim, marked: true},
		"nothing before":   {agent: "flotilla (member=" + a + "; shard=namespaces/03; term=7)", want: claim, marked: true},
		"wrapped twice":    {agent: agent(b, "cluster/nodes", 1) + " flotilla (member=" + a + "; shard=namespaces/03; term=7)", want: claim, marked: true},
		"empty":            {agent: ""},
		"binary":           {agent: client},
		"another's":        {agent: "notflotilla (member=x)"},
		"no end":           {agent: "x flotilla (member=" + a + "; shard=namespaces/03; term=7", marked: true, fails: true},
		"no term":          {agent: "x flotilla (member=" + a + "; shard=namespaces/03)", marked: true, fails: true},
		"another order":    {agent: "x flotilla (shard=namespaces/03; member=" + a + "; term=7)", marked: true, fails: true},
		"no member":        {agent: agent("", "namespaces/03", 7), marked: true, fails: true},
		"shard is no ID":   {agent: agent(a, "namespaces", 7), marked: true, fails: true},
		"term is negative": {agent: agent(a, "namespaces/03", -1), marked: true, fails: true},
		"term too great":   {agent: "x flotilla (member=" + a + "; shard=namespaces/03; term=2147483648)", marked: true, fails: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, marked, err := audit.ParseAgent(test.agent)
			if got != test.want || marked != test.marked || (err != nil) != test.fails {
				t.Errorf("ParseAgent(%q) = %v, %t, %v", test.agent, got, marked, err)
			}
		})
	}
}
