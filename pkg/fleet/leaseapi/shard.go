package leaseapi

import (
	"strconv"
	"strings"

	"github.com/flotilla-kube/flotilla/pkg/election"
	"github.com/flotilla-kube/flotilla/pkg/election/leaserecord"
	"github.com/flotilla-kube/flotilla/pkg/shard"
)

// ShardLease returns the name of a shard's Lease: "<fleet>-<ring>-<shard>".
func ShardLease(fleet string, id shard.ID) string {
	return fleet + "-" + id.Ring + "-" + id.Name
}

// ShardLabels returns the labels of a shard's Lease.
func ShardLabels(fleet string, id shard.ID) map[string]string {
	return map[string]string{FleetLabel: fleet, RingLabel: id.Ring, ShardLabel: id.Name}
}

// SaysRunning reports whether the holder of a Lease has published, in its present term, that it
// runs the shard.
func SaysRunning(o election.Observation) bool { return saysIn(o, RunningAnnotation) }

// SaysReady reports whether the holder of a Lease has published, in its present term, that
// everything is prepared and that it waits for the shard's predecessors.
func SaysReady(o election.Observation) bool { return saysIn(o, ReadyAnnotation) }

func saysIn(o election.Observation, annotation string) bool {
	return o.Annotations[annotation] == strconv.Itoa(int(o.Transitions))
}

// ShardOn returns the shard that a Lease is for, by its labels, and whether its name matches them.
func ShardOn(fleet string, o election.Observation) (shard.ID, bool) {
	id := shard.ID{Ring: o.Labels[RingLabel], Name: o.Labels[ShardLabel]}
	return id, o.Labels[FleetLabel] == fleet && id.Ring != "" && ShardLease(fleet, id) == o.Name
}

// IsShard reports whether a Lease belongs to a shard of the fleet: by its labels, or, if somebody
// has changed them, because a member of the fleet holds it. get returns the Lease of a name, or one
// that does not exist.
func IsShard(fleet string, o election.Observation, get func(lease string) election.Observation) bool {
	switch {
	case o.Labels[FleetLabel] == fleet && o.Labels[RingLabel] != "":
		return true
	case o.OfOtherFleet(fleet):
		return false
	}
	_, member := MemberOn(fleet, o)
	if member || o.Name == PlanLease(fleet) || !strings.HasPrefix(o.Name, fleet+"-") {
		return false
	}
	holder := leaserecord.MemberOf(o.Holder)
	return holder != "" && get(leaserecord.MemberLease(fleet, holder)).Exists
}

// CoverOn returns what a shard's Lease says it covers. A missing or unreadable part covers
// everything.
func CoverOn(o election.Observation) Cover {
	c := Cover{Any: o.Annotations[ControllersAnnotation] == ""}
	if text, ranged := o.Annotations[RangeAnnotation]; ranged {
		var err error
		if c.Range, err = shard.ParseRange(text); err != nil {
			return Cover{Any: true}
		}
	}
	c.Controllers = strings.Split(o.Annotations[ControllersAnnotation], ",")
	return c
}

// Cover is the extent that a shard's Lease names.
type Cover struct {
	shard.Extent
	// Any is set if the extent cannot be read, or may include any controller.
	Any bool
}

// Overlaps reports whether the cover overlaps with the extent, as far as can be known: an
// unreadable one overlaps with everything.
func (c Cover) Overlaps(e shard.Extent) bool {
	if c.Any {
		return c.Range.Overlaps(e.Range)
	}
	return c.Extent.Overlaps(e)
}

// Same reports whether the cover is the extent. A cover that names no controllers is taken to be.
func (c Cover) Same(e shard.Extent) bool { return c.Any || c.Equal(e) }
