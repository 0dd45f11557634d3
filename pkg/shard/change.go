package shard

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CheckSuccessor returns all reasons, in one error, why next may not replace current: it is not
// valid, its generation is not greater, or a shard has the ID of a current one and covers something
// else. A shard is never changed; what changes gets a new ID.
func CheckSuccessor(current, next Plan) error {
	if err := next.Validate(); err != nil {
		return err
	}
	var faults field.ErrorList
	if next.Generation <= current.Generation {
		faults = append(faults, field.Invalid(field.NewPath("generation"), next.Generation,
			fmt.Sprintf("must be greater than %d, the current one", current.Generation)))
	}
	before, after := current.Extents(), next.Extents()
	for i, r := range next.Rings {
		for j, s := range r.Shards {
			was, found := current.Shard(s.ID)
			if !found {
				continue
			}
			at := field.NewPath("rings").Index(i).Child("shards").Index(j)
			switch {
			case was.Group != s.Group:
				faults = append(faults, field.Invalid(at.Child("group"), s.Group,
					fmt.Sprintf("must be %q, as shard %q is in the current plan, or the shard have a new name", was.Group, s.ID)))
			case before[s.ID].Range != after[s.ID].Range:
				faults = append(faults, field.Invalid(at.Child("range"), s.Range.String(),
					fmt.Sprintf("must be %s, as shard %q is in the current plan, or the shard have a new name", was.Range, s.ID)))
			case !before[s.ID].Equal(after[s.ID]):
				faults = append(faults, field.Invalid(at.Child("controllers"), joinSorted(after[s.ID].Controllers),
					fmt.Sprintf("must be %s, as shard %q is in the current plan, or the shard have a new name", joinSorted(before[s.ID].Controllers), s.ID)))
			}
		}
	}
	return faults.ToAggregate()
}
