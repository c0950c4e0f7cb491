// Package score remembers how well a profile predicted the reads of runs, from one run to the next.
//
// A profile is worth fetching by only if what it predicts is read. A [Score] is the share of
// predicted bytes that was read, as a falling average: old runs count less and less. Whoever has
// scores decides by [Rules] which profiles to use. A score is a hint that may be lost.
package score
