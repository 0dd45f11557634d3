//go:build race

package election

// underRace reports whether the race detector is on.
const underRace = true
