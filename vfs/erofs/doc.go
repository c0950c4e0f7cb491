// Package erofs writes images of the EROFS file system that hold metadata and no
// data: directories, symlinks, and files with mode, size, time and the location of
// their data elsewhere. As a lower layer of an overlayfs with the data in a
// data-only layer, such an image is a whole tree of files, which the kernel walks
// without a user-space server:
//
//	mount -t erofs -o ro tree.erofs tree
//	mount -t overlay -o lowerdir=tree::objects,redirect_dir=on,metacopy=on,… overlay root
//
// Each file with data has the attributes trusted.overlay.metacopy (empty) and
// trusted.overlay.redirect (Entry.Redirect, a path below "objects"), a directory with
// Entry.Opaque has trusted.overlay.opaque. A read of a file in the image itself, without
// the overlay, fails with EIO.
//
// Overlayfs looks for the redirect of a file first in the layers that lie below the
// image, and in data-only layers if none of these has anything there. So these layers
// must have no entry with the first name of the path.
//
// # Layout of an image
//
//   - The number of an inode (st_ino, also in file handles) is its position: 32 bytes
//     times the number from the start of the image. The entries of
//     a directory lie together in the order of their names; a directory lies
//     before everything below it. So numbers rise along the names of a directory,
//     and an inode's number is larger than its directory's.
//   - Directories come in order of depth. An inode holds the number of its
//     directory in a field that kernels do not use (i_ino), by which Image.Path
//     turns a number into a path without an index.
//   - An inode takes 32 bytes if it has the image's time, a size below 4 GiB and
//     an owner below 65,536; otherwise 64. A file's attributes take 132 bytes with a
//     redirect of 80. The entries of a small directory lie after its inode.
//   - Every link count is 1; for a directory that means "not counted", so that
//     find(1) does not take entries for leaves.
//   - A filter in the inode answers requests for missing attributes (Linux 6.6
//     and later); overlayfs makes several at each lookup.
//
// Linux mounts the file of an image without a loop device since 6.12
// (CONFIG_EROFS_FS_BACKED_BY_FILE); data-only layers exist since 6.5.
//
// # What it does not do
//
// It writes no data, no hard links, no devices and no other attributes. It rejects
// trees with names that the kernel could not distinguish: it checks names and their
// order. The same slice of entries may occur in several places; a tree
// that contains itself ends at Options.MaxBytes.
//
// The package starts no goroutine and holds no lock. Different images may be
// written at the same time, also from shared entries.
package erofs
