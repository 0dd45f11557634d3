package measure

import (
	"maps"
	"math"
	"slices"
)

// Histogram maps the upper bound of each bucket to how many observations were at most that. The
// last bound is +Inf.
type Histogram map[float64]float64

// Add adds another histogram with the same bounds.
func (h Histogram) Add(other Histogram) {
	for bound, n := range other {
		h[bound] += n
	}
}

// Since returns what was observed after an earlier state of the same histogram.
func (h Histogram) Since(before Histogram) Histogram {
	d := Histogram{}
	for bound, n := range h {
		d[bound] = n - before[bound]
	}
	return d
}

// Count returns the number of observations.
func (h Histogram) Count() int64 { return int64(h[math.Inf(1)]) }

// Quantile returns the q-quantile (0 to 1) as PromQL's histogram_quantile does: observations are
// evenly spread in their bucket, and those beyond the last finite bound are at that bound. It is
// NaN without observations.
func (h Histogram) Quantile(q float64) float64 {
	bounds := slices.Sorted(maps.Keys(h))
	total := h[math.Inf(1)]
	if len(bounds) < 2 || total <= 0 {
		return math.NaN()
	}
	rank := q * total
	i := 0
	for i < len(bounds)-1 && h[bounds[i]] < rank {
		i++
	}
	if i == len(bounds)-1 {
		return bounds[i-1]
	}
	low, below := 0.0, 0.0
	if i > 0 {
		low, below = bounds[i-1], h[bounds[i-1]]
	} else if bounds[0] <= 0 {
		return bounds[0]
	}
	in := h[bounds[i]] - below
	if in <= 0 {
		return bounds[i]
	}
	return low + (bounds[i]-low)*(rank-below)/in
}

// QuantileOf returns the q-quantile (0 to 1) of sorted values, interpolated between the two
// nearest; NaN if there are none.
func QuantileOf(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (sorted[high]-sorted[low])*(at-float64(low))
}
