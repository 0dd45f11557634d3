package catalogue

import (
	"slices"
	"testing"
)

func TestIdentities(t *testing.T) {
	all := Identities()
	for _, row := range All() {
		for _, client := range row.Clients {
			if !slices.Contains(all[client.Name], row.Name) {
				t.Errorf("%s uses the identity %s, behind which are %v", row.Name, client.Name, all[client.Name])
			}
		}
	}
	for name, behind := range all {
		if distinct := slices.Compact(slices.Sorted(slices.Values(behind))); len(distinct) != len(behind) {
			t.Errorf("behind %s: %v, want each once", name, behind)
		}
	}
}
