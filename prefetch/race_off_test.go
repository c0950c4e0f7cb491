//go:build !race

package prefetch

const underRace = false
