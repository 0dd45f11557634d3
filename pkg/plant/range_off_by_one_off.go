//go:build !plant_range_off_by_one

package plant

// RangeOffByOne says that a range contains its end, which belongs to the next one.
const RangeOffByOne = false
