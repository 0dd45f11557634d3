package catalogue

// Beside returns the group on whose member this group is best run too, because both read the same heavy objects and a
// process caches them once; empty for most. The groups stay shards of their own: one may be moved without the other.
func Beside(group string) string {
	if group == GroupVolumes {
		return GroupNodes // all pods
	}
	return ""
}
