package audit_test

import (
	"testing"

	"github.com/flotilla-kube/flotilla/pkg/audit"
)

// TestVolumes makes a shard with a range write a PersistentVolume.
func TestVolumes(t *testing.T) {
	volume := func(namespace string) jsonObject {
		pv := object("PersistentVolume", "", "pv")
		if namespace != "" {
			pv = pv.set("spec", "claimRef", map[string]any{"namespace": namespace, "name": "data"})
		}
		return pv
	}
	wrote := func(namespace string, version int, second float64) line {
		return by("expand-controller", does("patch", by1, "", "persistentvolumes", volume(namespace), version, second))
	}
	made := func(namespace string) line {
		return does("create", user, "", "persistentvolumes", volume(namespace), 15, 1)
	}
	unknown := request("patch", by1, "", "persistentvolumes", "", "pv", 2)
	tests := map[string]struct {
		lines           []line
		want            []audit.Kind
		judged, unknown int
	}{
		"of a claim in the range":      {lines: []line{wrote(low, 16, 2)}, judged: 1},
		"of a claim beyond it":         {lines: []line{wrote(high, 16, 2)}, want: []audit.Kind{audit.WrongRange}, judged: 1},
		"of no claim":                  {lines: []line{wrote("", 16, 2)}, want: []audit.Kind{audit.WrongScope}, judged: 1},
		"by another controller":        {lines: []line{by("deployment-controller", wrote(low, 16, 2))}, want: []audit.Kind{audit.WrongScope}},
		"by an unknown controller":     {lines: []line{made(low), unknown}, judged: 1},
		"not known from the answer":    {lines: []line{made(high), by("expand-controller", unknown)}, want: []audit.Kind{audit.WrongRange}, judged: 1},
		"refused":                      {lines: []line{made(high), by("expand-controller", unknown.code(409))}, want: []audit.Kind{audit.WrongRange}, judged: 1},
		"not known at all":             {lines: []line{by("expand-controller", unknown)}, unknown: 1},
		"bound to another claim later": {lines: []line{made(low), by("expand-controller", unknown), does("update", user, "", "persistentvolumes", volume(high), 17, 3)}, judged: 1},
		"bound to another claim meanwhile": {
			lines: []line{made(low), does("update", user, "", "persistentvolumes", volume(high), 16, 1.5), by("expand-controller", unknown)},
			want:  []audit.Kind{audit.WrongRange}, judged: 1,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			report := check(t, append(test.lines, lease(lower, a, 1, 10, 0), lease(lower, a, 1, 12, 1))...)
			requireKinds(t, report, test.want...)
			if report.Volumes != test.judged || report.VolumesUnknown != test.unknown {
				t.Errorf("%d judged, %d not, want %d and %d", report.Volumes, report.VolumesUnknown, test.judged, test.unknown)
			}
		})
	}
}
