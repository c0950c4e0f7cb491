//go:build race

package prefetch

// underRace: the race detector makes simulations several times as slow, and finds no more in many
// of them than in a few. "make test" runs them without it, too.
const underRace = true
