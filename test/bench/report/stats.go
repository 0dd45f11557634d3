package report

import (
	"math"
	"slices"
)

// Spread is a figure over rounds.
type Spread struct {
	Median, Min, Max float64
	N                int // number of rounds
}

// SpreadOf returns the spread of values, and whether there are any. The median of an even number of
// values is the mean of the middle two.
func SpreadOf(values []float64) (Spread, bool) {
	if len(values) == 0 {
		return Spread{}, false
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1], N: n}, true
}

// Fit is a least squares fit.
type Fit struct {
	// Coefficients are those of the columns, in their order.
	Coefficients []float64
	// R2 is the share of the variance that the fit explains; NaN if all values are the same. It can
	// be negative for a fit without a constant column.
	R2 float64
	N  int // number of points
}

// singular is the bound below which a pivot counts as zero, with columns scaled to 1.
const singular = 1e-9

// FitOf returns the coefficients that make the sum of rows[i][j]*coefficient[j] closest to y[i].
// There are none if there are fewer points than columns, or if a column depends on the others.
func FitOf(rows [][]float64, y []float64) (Fit, bool) {
	if len(rows) == 0 || len(rows) != len(y) || len(rows) < len(rows[0]) {
		return Fit{}, false
	}
	k := len(rows[0])
	scale := make([]float64, k)
	for _, row := range rows {
		for j, v := range row {
			scale[j] = max(scale[j], math.Abs(v))
		}
	}
	if slices.Contains(scale, 0) {
		return Fit{}, false
	}
	// The normal equations, the right-hand side in the last column.
	matrix := make([][]float64, k)
	for a := range k {
		matrix[a] = make([]float64, k+1)
		for i, row := range rows {
			for b := range k {
				matrix[a][b] += row[a] / scale[a] * row[b] / scale[b] / float64(len(rows))
			}
			matrix[a][k] += row[a] / scale[a] * y[i] / float64(len(rows))
		}
	}
	if !eliminate(matrix) {
		return Fit{}, false
	}
	fit := Fit{N: len(y)}
	for a := range k {
		fit.Coefficients = append(fit.Coefficients, matrix[a][k]/scale[a])
	}
	fit.R2 = explained(fit.Coefficients, rows, y)
	return fit, true
}

// eliminate solves by Gauss-Jordan elimination with the greatest pivot, in place; false if there is
// no unique solution.
func eliminate(m [][]float64) bool {
	for a := range m {
		p := a
		for b := a + 1; b < len(m); b++ {
			if math.Abs(m[b][a]) > math.Abs(m[p][a]) {
				p = b
			}
		}
		m[a], m[p] = m[p], m[a]
		if math.Abs(m[a][a]) < singular {
			return false
		}
		pivot := m[a][a]
		for j := range m[a] {
			m[a][j] /= pivot
		}
		for b := range m {
			if b == a {
				continue
			}
			factor := m[b][a]
			for j := range m[b] {
				m[b][j] -= factor * m[a][j]
			}
		}
	}
	return true
}

func explained(coefficients []float64, rows [][]float64, y []float64) float64 {
	var mean, total, left float64
	for _, v := range y {
		mean += v / float64(len(y))
	}
	for i, row := range rows {
		fitted := 0.0
		for j, v := range row {
			fitted += v * coefficients[j]
		}
		total += (y[i] - mean) * (y[i] - mean)
		left += (y[i] - fitted) * (y[i] - fitted)
	}
	if total == 0 {
		return math.NaN()
	}
	return 1 - left/total
}
