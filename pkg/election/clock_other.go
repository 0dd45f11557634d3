//go:build !linux

package election

func newBoottimeClock() (Clock, bool) {
	return nil, false
}
