//go:build plant_fence_off

package plant

// FenceOff says that the fence lets requests pass after the claim has ended.
const FenceOff = true
