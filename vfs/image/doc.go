// Package image shows what several roots have in common at the same path by metadata images: EROFS file systems
// (package erofs) that have names and attributes of a subtree, but no data. Overlayfs takes the data of their files
// from the folder of the local blobs, or, where a blob is not there, from the FUSE layer, which fetches it.
//
// A Cache makes images, keeps them mounted, and chooses those that a root shows: its View. It learns from roots that
// were closed: when a large enough subtree is seen for the second time at its path, it becomes an image. Only what
// was at hand then is in it, and no symlinks, whose reading nobody would see; a Cover says what is left to the
// FUSE layer. What is opened in images the watcher learns from fanotify, and tells the View.
//
// A root of a large tree for which there is no image yet has one of its own, which grows: it is a file that FUSE
// shows (files), mounted before anything is in it. When the kernel reads a block, grown writes the directory whose
// region it lies in, and after some of these those that are at hand, up to maxAhead, which it stores in the kernel's page
// cache. It has symlinks, too, of which nobody sees who follows them, and directories that are not at hand: who looks at
// one waits for it, which a Waiter does. The inode of a directory lies in the directory's own region: also a lookup of its
// name or a stat needs the Directory, and fails if that cannot be had, where FUSE answers from the directory above.
//
// Beside that it refuses to wait for anything that is not at hand, and to know what a root is made of besides.
//
// Goroutines: one that makes images, one that asks fanotify what was opened, and those that serve files; Close ends
// them and waits. A grown image has one more while it grows; its end waits for that one, and for those who read it.
//
// Locks: Cache.mu guards the table of images, files.mu and grown.mu what is grown, watcher.mu the views that are
// watched, image.shown where an image is mounted for other owners; the last one alone is held while something is
// mounted. None is taken while another is held. The watcher's turn is a token: whoever has it takes events from the
// kernel, and calls hooks.
package image
