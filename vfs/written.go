package vfs

import "github.com/forerunner-build/forerunner/vfs/folder"

// WrittenBytes returns what the files take that the action has made or changed, on
// the disk or, with Options.UpperMemory, in memory. It looks at each of them, without
// waiting for the action; what is removed meanwhile does not count. Not seen are
// files that have no name any more and, among hard links without overlayfs, those
// that have several.
func (r *Root) WrittenBytes() int64 {
	dir, linked := r.upper.scratch()
	return folder.UsageOf(dir, func(nlink uint64) bool { return !linked || nlink == 1 })
}
