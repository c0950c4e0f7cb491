// Package erofs writes images of the EROFS file system that hold metadata and no
// data: directories, symlinks, and files of which the image knows mode, size,
// time and where in another place their data is. Mounted as the lower layer of
// an overlayfs that has the data below it in a data-only layer, such an image is
// a whole tree of files which the kernel walks without asking anybody:
//
//	mount -t erofs -o ro tree.erofs tree
//	mount -t overlay -o lowerdir=tree::objects,redirect_dir=on,metacopy=on,… overlay root
//
// Each file with data has the attributes trusted.overlay.metacopy (empty) and
// trusted.overlay.redirect (Entry.Redirect, a path below "objects"). A file that
// is read in the image itself, without the overlay, gives EIO.
//
// # What an image looks like
//
//   - The number of an inode (st_ino, and what file handles hold) says where it
//     lies: 32 bytes times the number from the start of the image. The entries of
//     a directory lie together in the order of their names; a directory lies
//     before everything below it. So numbers rise along the names of a directory,
//     and an inode's number is larger than its directory's.
//   - Directories come in order of depth. An inode holds the number of its
//     directory in a field that kernels do not use (i_ino), by which Image.Path
//     turns a number into a path without an index.
//   - An inode takes 32 bytes if it has the image's time, a size below 4 GiB and
//     an owner below 65,536, else 64. A file's attributes take 132 bytes with a
//     redirect of 80. The entries of a small directory lie behind its inode.
//   - Every link count is 1; for a directory that means "not counted", so that
//     find(1) does not take entries for leaves.
//   - A filter in the inode answers for attributes that are not there (Linux 6.6
//     and later); overlayfs asks for several at each lookup.
//
// Linux mounts the file of an image without a loop device since 6.12
// (CONFIG_EROFS_FS_BACKED_BY_FILE); data-only layers exist since 6.5.
//
// # What it refuses to do
//
// It writes no data, no hard links, no devices, no other attributes, and no
// tree whose names the kernel could not tell apart: names are checked, and the
// order of them. The same slice of entries may occur in several places; a tree
// that contains itself ends at Options.MaxBytes.
//
// The package starts no goroutine and holds no lock. Different images may be
// written at the same time, also from entries that they share.
package erofs
