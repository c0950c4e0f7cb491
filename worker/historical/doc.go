// Package historical stores results that no action cache has, such as those of failed actions,
// where pages of Buildbarn (bb_browser, bb-portal) show them: as a blob of the storage, to which a
// link leads. It is for people alone: nothing that Forerunner does depends on such a blob. It has
// no goroutines and no locks.
package historical
