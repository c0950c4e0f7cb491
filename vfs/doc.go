// Package vfs shows the input root of an action as a folder: below, a read-only
// FUSE mount that asks for a directory or a file only when the action does;
// above it, an overlayfs whose writable layer takes whatever the action
// creates, changes, renames or removes. Nothing reaches the store.
//
// FS is the place where roots are mounted; Open proves with a small root of its
// own that the machine can do it. Root is the input root of one action, from
// NewRoot to Close. A Source says what is in it.
//
// # Layers
//
// Each layer is a package that owns its state and knows no other; a Root only joins those
// that the machine and its spec call for, and FS holds what they share:
//
//   - vfs/fuse shows the inputs through FUSE, when somebody asks for them;
//   - vfs/image shows by EROFS what several roots have in common (vfs/erofs writes it);
//   - vfs/link shows the inputs by hard links, where FUSE is not to be had;
//   - vfs/overlay lies over any of these, takes what the action writes, and tells it from inputs.
//
// Below them, vfs/folder has the folders that actions write to, vfs/mounts what all that mount need,
// vfs/vouch when bytes were last seen to be right.
//
// # What an input looks like
//
//   - A file is 0444, or 0555 if it is executable; node_properties.unix_mode
//     overrides the nine permission bits. A directory is 0755, a symlink 0777.
//     All belong to the user of the worker, or to Options.Owner. REv2 does not fix the modes; without
//     write permission a tool that replaces its input instead of writing into
//     it behaves as in a sandbox. (A command run by root may write all the same,
//     to its own copy.)
//   - Times are those of node_properties.mtime, else 2000-01-01, so that two
//     actions see the same. A Directory's own node_properties are ignored: they
//     would be known only after reading it, and attributes are cached for good.
//   - Every link count is 1; for a directory that means "not counted", so that
//     find(1) does not skip what it believes to be leaves.
//   - A name is at most 255 bytes, in any encoding. Directories that break REv2's
//     rules (names, order, duplicates, digests) answer EIO, as a whole, and are
//     reported by Root.Err.
//
// # What is a read
//
// A directory is read when its entries are first needed, by a listing or by
// looking a name up in it, whether or not the name is there; a file when it is
// first opened, a symlink when it is first followed. Each path is reported once; a
// file before its content is waited for, which may then fail to come.
// A name that is not there is not a read, nor is a stat: Stats counts apart which
// names the kernel looked up.
//
// A look is more than a read: RootSpec.OnLook is told of every lookup, whether or not
// the name is there, of every listing, open and readlink, and of what Unchanged
// tells. Thus it hears of all that anybody gets to know of the inputs, since the kernel
// asks at least once for what it has not been told, and every root is new to it.
//
// Of what a metadata image shows, the kernel tells only what was opened: files,
// and directories for a listing. They are reported within some 50 ms, and before
// Stats or Close return. A directory counts as read with what is read in it; names
// that are only looked up in it are not noticed. A file is reported by its path
// among the inputs, also when the action had moved it.
//
// # No inputs
//
// A root without inputs has nothing to show lazily or to protect: it is a folder of
// the upper folder, without a mount, and Stats of it are zero. Where OnLook wants to hear
// that nothing was found, it is a root like others. Folders that their actions left
// untouched serve again (Folder), which saves half the time of an action that does nothing.
//
// # Metadata images
//
// A trip to this process costs more than most of what programs do with a file.
// So what several roots had in common at the same path is shown without: an
// EROFS image (package erofs) has the names and attributes of a subtree, and
// overlayfs takes the data of its files from Options.Blobs, or, if a blob is not
// there, from the FUSE mount, which fetches it. Images are made in the background
// of directories that are at hand, when a subtree was seen in a second root, and
// stay mounted for later ones. What was not at hand, and symlinks, whose reading
// would go unnoticed, are left to the FUSE layer, which then shows just that.
// What an image costs and gives does not depend on how much of it is used.
// The first root of a large tree that is at hand has an image that is written while it is used; of its symlinks nobody
// hears who follows them.
//
// # Files that arrive
//
// If the Source is an ArrivingSource, a large file is opened before it is there, and its reads wait for
// the bytes they want (package fuse says how). What was begun goes on when the action closes the file,
// for what it has read of it is not verified yet: Root.Verify waits for that. If the blob is not
// what its digest says, reads and opens fail with EIO from then on, and Root.Err names it.
//
// # Memory
//
// A Root holds what the kernel knows: a node for each path that it looked up and
// has not forgotten, and a hash for each that was read. Directories belong to the
// Source, which may forget them; then they are asked for again, which is slower
// and counts as waiting. Nodes keep no part of them.
//
// # Fall-backs
//
// It never falls back in silence: Open warns of what is missing, what that costs
// and how to get it, or, where Options.Method allows no fall-back, fails with the
// same words. Without kernel passthrough reads are served from the page cache of
// the FUSE mount. Without FUSE, or without overlayfs above it, a root is a
// folder of hard links, which differs in this:
//
//   - NewRoot returns when every file of the tree was fetched and linked. Nobody
//     sees what is read: there are no hooks, no stalls and no Stats.
//   - The links lead to copies of the blobs (reflinks, where the file system
//     can), in the upper folder; never to the store. One inode has one mode and
//     one time, so a blob has a copy for each that it is used with: an executable
//     and a plain one, and within one root a copy for each file. Copies are kept for
//     later roots, up to Options.LinkBytes, and with an overlayfs above so are whole
//     directories of links that recur; no two of these lead to one copy.
//   - The link count of a file is that of its copy.
//   - With an overlayfs above, what the action writes stays its own, as with
//     FUSE. Without one it may remove and replace inputs at will, but if it writes
//     into one, or changes its attributes, all roots that share the copy see it.
//     Root.Intact finds that by size, mode and modification time, for every root
//     concerned, and the copy is dropped. If somebody writes through a link and then sets
//     size and time back, Root.Vouch finds it by the change time.
//
// # What is vouched for
//
// RootSpec.OnBlob tells of the blobs whose bytes the action may get, for others to
// vouch for them. What this package itself keeps for several roots it vouches for:
// metadata images have a hash of their file, copies that hard links lead to that of
// their blob, and both a verdict with the time when they were last read and right. Where
// that is longer ago than Options.VerifyEvery, or an image's file was written to, they are
// read beside the action, and Root.Vouch waits for that. It also reads a copy whose change time is
// another than the one that our own making and removing of links gave it. A wrong one is not used again. Below
// an overlayfs it looks at the change times of the folders of links, too: somebody else may have put another file
// under the name of an input.
//
// # What it refuses to do
//
// It never forks, and go-fuse is given the mounted device, so no fusermount is run
// and the device is not inherited by children. The worker must not open files
// below the FUSE mount itself (Root.Path is the overlay), or map them, or run
// programs from them: the thread that waits for FUSE could be the one that
// serves it.
//
// A process that is killed while it looks into one of its own roots, which the
// kernel does for it even when it mounts one, may be left waiting for itself and
// never end. The guard that was started before (mounts.StartGuard) aborts its mounts, or the next
// Open of the same folders does.
//
// # Goroutines
//
// A Root owns the goroutines of its layers, and one that reads what is to be vouched
// for. Close ends them and waits: it unmounts, aborts the FUSE
// connection, cancels the Source's contexts, and returns when the last of them
// is gone. So a Source must return when its context ends. NewRoot waits for those
// that it starts to make links. An FS has one goroutine that removes what closed
// roots leave, while there is any, and those of its images; its Close waits for all of them.
//
// # Locks
//
// FS.mu guards the set of roots, plainFolders.mu the spare folders, reads.mu what was read of a root.
// None is taken while another is held, and none is held while a Source, a hook or a layer
// is called.
package vfs
