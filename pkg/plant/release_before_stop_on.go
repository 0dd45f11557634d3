//go:build plant_release_before_stop

package plant

// ReleaseBeforeStop says that a claim that drains is taken to have drained, and its Lease is released, while its work still runs.
const ReleaseBeforeStop = true
