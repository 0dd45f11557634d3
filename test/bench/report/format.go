package report

import (
	"fmt"
	"math"
	"strconv"
)

// Format formats a value for humans, in a unit that gives three digits.
type Format func(float64) string

// absent stands for an unmeasured value.
const absent = "–"

// Plain formats a number without a unit.
func Plain(v float64) string { return digits(v) }

// Number formats a whole number.
func Number(v float64) string { return strconv.FormatFloat(math.Round(v), 'f', -1, 64) }

// Seconds formats seconds, milliseconds or microseconds.
func Seconds(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1 || a == 0:
		return digits(v) + " s"
	case a >= 1e-3:
		return digits(v*1e3) + " ms"
	default:
		return digits(v*1e6) + " µs"
	}
}

// Bytes formats bytes in powers of 1024.
func Bytes(v float64) string {
	const kibi = 1024
	switch a := math.Abs(v); {
	case a >= 10*kibi*kibi*kibi:
		return digits(v/kibi/kibi/kibi) + " GiB"
	case a >= kibi*kibi:
		return digits(v/kibi/kibi) + " MiB"
	case a >= kibi:
		return digits(v/kibi) + " KiB"
	default:
		return digits(v) + " B"
	}
}

// PerSecond formats a rate.
func PerSecond(v float64) string { return digits(v) + "/s" }

func digits(v float64) string {
	switch a := math.Abs(v); {
	case a < 0.005: // otherwise the noise of a fit would become 0.00
		return "0"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// text formats a spread: the median, and the least and greatest value in parentheses if there is
// more than one round.
func text(s Spread, ok bool, f Format) string {
	switch {
	case !ok:
		return absent
	case s.N == 1:
		return f(s.Median)
	default:
		return fmt.Sprintf("%s (%s..%s)", f(s.Median), f(s.Min), f(s.Max))
	}
}
