// Package historical stores results that are not in the action cache, such as those of failed
// actions, so that Buildbarn's pages (bb_browser, bb-portal) show them: as a blob of the storage,
// with a link. It is only for people: nothing in Forerunner depends on such a blob. It has no
// goroutines and no locks.
package historical
