// Package image shows subtrees that several roots have at the same path by metadata images: EROFS
// file systems (package erofs) with the names and attributes of a subtree, but no data. Overlayfs
// takes the data of their files from the folder of the local blobs, or, if a blob is missing there,
// from the FUSE layer, which fetches it.
//
// A Cache makes images, keeps them mounted, and chooses those that a root shows: its View. It
// learns from closed roots: when a large enough subtree is seen for the second time at its path, it
// becomes an image. Small subdirectories of one directory become a gathered image together (gather),
// which roots have while all of them are unchanged. The image has only what was local then, and no
// symlinks, whose reads would be invisible; a Cover says what is left to the FUSE layer. The watcher
// learns from fanotify which files are opened in images, and reports them to the View.
//
// Images lie above the FUSE layer. Directories that they show with everything below are opaque:
// overlayfs asks the FUSE layer for nothing in them. But it looks for the data of a file in the
// layers below its image before it looks in the folder of the blobs. So a root has no images if an
// entry of its topmost Directory has the name of the folder of its blobs, or if that Directory is
// not local when the View is made: no layer has other names at its top.
//
// A root of a large tree without an image has one of its own, which grows: it is a file that FUSE
// shows (files), mounted before anything is in it. When the kernel reads a block, grown writes the
// directory whose region contains it, and after some of these other local ones ahead of the reader,
// up to maxAhead, into the kernel's page cache. It has symlinks, too, whose reads are invisible,
// and directories that are not local: their readers wait for them, which a Waiter does. The inode
// of a directory lies in the directory's own region: so a lookup of its name or a stat needs the
// Directory, and fails without it, where FUSE answers from the parent directory.
//
// Otherwise it never waits for missing blobs, and it does not know the other layers of a root.
//
// Goroutines: one that makes images, one that reads fanotify, and those that serve files; Close
// ends them and waits. A grown image has one more while it grows; its end waits for that one, and
// for its readers.
//
// Locks: Cache.mu guards the table of images, files.mu and grown.mu grown images, watcher.mu the
// watched views, image.shown the mounts of an image for other owners; only the last one is held
// during a mount. None is taken while another is held. The watcher's turn is a token: its holder
// takes events from the kernel, and calls hooks.
package image
