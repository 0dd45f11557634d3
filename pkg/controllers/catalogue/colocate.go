package catalogue

// ColocateWith returns the group on whose member this group is best run too, because both read the
// same heavy objects and a process reads and caches them once; empty for most. The groups stay
// separate shards: one may be moved without the other. They stay where they are held, see
// [shard.Plan.SettleRing]: their controllers forget what matters.
func ColocateWith(group string) string {
	switch group {
	case GroupVolumes, // all pods too
		GroupGarbage: // the metadata of all pods is most of what it reads, and two thirds of the bytes of whole ones
		return GroupNodes
	}
	return ""
}
