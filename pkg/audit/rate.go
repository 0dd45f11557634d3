package audit

import (
	"slices"
	"time"
)

// Rate returns how many writes a second an incarnation made within the given time before a moment,
// by the API server's clock: those that carry its name and were not refused, without Events. A
// chaos round counts only if its victim was working, so it checks the victim's rate at the time of
// the fault.
func (r Report) Rate(incarnation string, at time.Time, within time.Duration) float64 {
	if within <= 0 {
		return 0
	}
	times := r.times[incarnation]
	position := func(t time.Time) int {
		i, _ := slices.BinarySearchFunc(times, t, func(a, b time.Time) int {
			if a.After(b) {
				return 1
			}
			return -1
		})
		return i
	}
	return float64(position(at)-position(at.Add(-within))) / within.Seconds()
}
