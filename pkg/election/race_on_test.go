//go:build race

package election

// underRace tells that the race detector is on.
const underRace = true
