package shard

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
)

// reservedRings may not name a ring: the Leases <fleet>-member-<pod> and <fleet>-plan belong to the
// members and the plan.
var reservedRings = []string{"member", "plan"}

// ID names a shard, and its Lease, <fleet>-<ring>-<shard>. A shard that changes gets a new ID, and
// an ID once used never means anything else.
type ID struct {
	// Ring is the name of the shard's ring: a DNS label without a hyphen, and neither "member" nor
	// "plan". Without the hyphen no two IDs yield the same Lease name.
	Ring string
	// Name is the name of the shard, unique in its ring: a DNS label.
	Name string
}

// String returns "ring/name".
func (id ID) String() string { return id.Ring + "/" + id.Name }

// Compare orders IDs by ring, then by name, both bytewise. It returns -1, 0 or +1 as cmp.Compare
// does.
func (id ID) Compare(other ID) int {
	return cmp.Or(cmp.Compare(id.Ring, other.Ring), cmp.Compare(id.Name, other.Name))
}

// validate returns an error that names each part at fault, its value and what is allowed. It is not
// exported, because an exported method would be promoted to Shard, which it does not check: use
// ParseID or Plan.Validate.
func (id ID) validate() error {
	var faults []error
	for _, msg := range checkRingName(id.Ring) {
		faults = append(faults, fmt.Errorf("ring %q: %s", id.Ring, msg))
	}
	for _, msg := range validation.IsDNS1123Label(id.Name) {
		faults = append(faults, fmt.Errorf("shard name %q: %s", id.Name, msg))
	}
	return utilerrors.NewAggregate(faults)
}

func checkRingName(name string) []string {
	msgs := validation.IsDNS1123Label(name)
	if strings.Contains(name, "-") {
		msgs = append(msgs, "must not contain '-', which separates ring and shard in Lease names")
	}
	if slices.Contains(reservedRings, name) {
		msgs = append(msgs, "is reserved for other Leases of the fleet")
	}
	return msgs
}

// ParseID is the inverse of String, and accepts only valid IDs. The error names the part at fault,
// its value and what is allowed.
func ParseID(s string) (ID, error) {
	ring, name, found := strings.Cut(s, "/")
	if !found {
		return ID{}, fmt.Errorf("shard %q: must be ring and shard name joined by a slash, such as \"namespaces/00\"", s)
	}
	id := ID{Ring: ring, Name: name}
	if err := id.validate(); err != nil {
		return ID{}, fmt.Errorf("shard %q: %w", s, err)
	}
	return id, nil
}

// Shard is the unit of claim and handoff: either a range of namespaces or a named group of
// cluster-scoped controllers, never both.
type Shard struct {
	ID
	// Range is the part of the keyspace of a namespaced shard. Its zero value is the whole
	// keyspace; in a shard with a Group it is zero and means nothing.
	Range Range
	// Group is the name of the shard's group of cluster-scoped controllers, a DNS label; empty if
	// the shard is a range.
	Group string
	// Controllers are the names of the group's controllers, sorted; empty if the shard is a range,
	// which runs every controller of its ring.
	Controllers []string
	// Pin is the member on which an operator wants the shard, and Home the one on which the planner
	// has put it; empty leaves it to the consistent hashing. Both are preferences: while that
	// member is away, another one has the shard.
	Pin, Home string
	// ColocateWith is the group of the same ring whose member this group goes to unless Pin or Home
	// says otherwise, because both read the same objects; empty leaves it to the consistent
	// hashing. Such groups stay where they are held, together or not: see Plan.SettleRing.
	ColocateWith string
	// Weight is the shard's weight when the planner last changed the plan, in objects; 0 if it is
	// unknown. While a member is away, its shards are dealt out by weight: see Plan.SettleRing.
	Weight int64
}

// PreferredMember returns the member that the shard should be on: Pin, else Home, else none.
func (s Shard) PreferredMember() string { return cmp.Or(s.Pin, s.Home) }

// Namespaced reports whether the shard is a range of namespaces, not a group of cluster-scoped
// controllers.
func (s Shard) Namespaced() bool { return s.Group == "" }

// shardJSON is a Shard as JSON, where exactly one of Range and Group is set.
type shardJSON struct {
	Ring         string   `json:"ring"`
	Name         string   `json:"name"`
	Range        *Range   `json:"range,omitempty"`
	Group        string   `json:"group,omitempty"`
	Controllers  []string `json:"controllers,omitempty"`
	Pin          string   `json:"pin,omitempty"`
	Home         string   `json:"home,omitempty"`
	ColocateWith string   `json:"colocateWith,omitempty"`
	Weight       int64    `json:"weight,omitempty"`
}

// MarshalJSON writes the range of a namespaced shard even if it is the zero value, the whole
// keyspace, and leaves it out of a group's shard.
func (s Shard) MarshalJSON() ([]byte, error) {
	out := shardJSON{Ring: s.Ring, Name: s.Name, Group: s.Group, Controllers: s.Controllers, Pin: s.Pin, Home: s.Home, ColocateWith: s.ColocateWith, Weight: s.Weight}
	if s.Namespaced() {
		out.Range = &s.Range
	} else if s.Range != (Range{}) {
		return nil, fmt.Errorf("shard %q: has both range %s and group %q, must have one", s.ID, s.Range, s.Group)
	}
	return json.Marshal(out)
}

// UnmarshalJSON refuses a shard that has neither range nor group, or both: a missing range must not
// mean the whole keyspace. It refuses unknown fields, which could change what the shard means.
func (s *Shard) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var in shardJSON
	if err := decoder.Decode(&in); err != nil {
		return err
	}
	id := ID{Ring: in.Ring, Name: in.Name}
	if (in.Range == nil) == (in.Group == "") {
		return fmt.Errorf("shard %q: must have exactly one of range and group", id)
	}
	*s = Shard{ID: id, Group: in.Group, Controllers: in.Controllers, Pin: in.Pin, Home: in.Home, ColocateWith: in.ColocateWith, Weight: in.Weight}
	if in.Range != nil {
		s.Range = *in.Range
	}
	return nil
}
