//go:build !plant_lost_lease_ignored

package plant

// LostLeaseIgnored says that the work of a lost claim is not told.
const LostLeaseIgnored = false
