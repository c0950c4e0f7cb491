// Package vfs shows the input root of an action as a folder: below, a read-only FUSE mount that
// asks for a directory or a file only when the action does; above it, an overlayfs whose writable
// layer takes everything that the action creates, changes, renames or removes. Nothing reaches the
// store.
//
// An FS is the folder where roots are mounted; Open tests with a small root that the machine
// supports it. A Root is the input root of one action, from NewRoot to Close. A Source provides its
// content.
//
// # Layers
//
// Each layer is a package that owns its state and knows no other. A Root joins the layers that the
// machine and its spec call for, and FS holds the state that they share:
//
//   - vfs/fuse shows the inputs through FUSE, on demand;
//   - vfs/image shows by EROFS the subtrees that several roots have in common (vfs/erofs writes it);
//   - vfs/link shows the inputs by hard links, if there is no FUSE;
//   - vfs/copied shows small inputs by copies in a plain folder, which needs no other layer;
//   - vfs/frame empties such a folder for the next root;
//   - vfs/overlay lies over any of these, takes the files that the action writes, and distinguishes
//     them from inputs.
//
// Below them, vfs/folder has the folders that actions write to, vfs/mounts the needs of all mounts,
// vfs/vouch the times of verification.
//
// # Attributes of an input
//
// The umask of the process must be 022: folders of a root are made with it.
//
//   - A file is 0444, or 0555 if it is executable; node_properties.unix_mode
//     overrides the nine permission bits. A directory is 0755, a symlink 0777.
//     All belong to the user of the worker, or to Options.Owner. REv2 does not define the modes;
//     without write permission a tool that replaces its input instead of writing to
//     it behaves as in a sandbox. (A command run by root may write all the same,
//     to its own copy.)
//   - Times are those of node_properties.mtime, else 2000-01-01, so that two
//     actions see the same. A Directory's own node_properties are ignored: they
//     are known only after reading it, and attributes are cached for good.
//   - Every link count is 1; for a directory that means "not counted", so that
//     find(1) does not skip what it takes for leaves.
//   - A name is at most 255 bytes, in any encoding. Directories that break REv2's
//     rules (names, order, duplicates, digests) return EIO, as a whole, and
//     Root.Err reports them.
//
// # Reads
//
// A directory is read when its entries are first needed, by a listing or by a lookup of a name in
// it, whether or not the name exists; a file when it is first opened, a symlink when it is first
// followed. Each path is reported once; a file before its content is fetched, which may then fail.
// A lookup of a missing name is not a read, nor is a stat: Stats counts the lookups of the kernel
// separately.
//
// A look is more than a read: RootSpec.OnLook is called for every lookup, whether or not the name
// exists, for every listing, open and readlink, and for the results of Unchanged. So it learns
// everything that becomes known of the inputs, because the kernel asks at least once for each fact,
// and every root is new to it.
//
// For a metadata image, the kernel reports only opens: of files, and of directories for a listing.
// They are reported within some 50 ms, and before Stats or Close return. A directory counts as read
// when something in it is read; lookups of names that only the image shows are not seen, and Stats
// does not count them. But it counts as absent the folder of the blobs, for which overlayfs asks
// FUSE. A file is reported by its path among the inputs, also if the action has moved it. A file
// that is opened to be overwritten (O_TRUNC) counts as read, and truncate(2) does not; with FUSE it
// is the other way round.
//
// # Roots without inputs
//
// A root without inputs has nothing to fetch or to protect: it is a folder of the upper folder,
// without a mount, and its Stats are zero. If OnLook is set, it is a root like others.
//
// When no process of the action uses the folder any more, everything in it is removed but the folders
// of inputs and outputs that are as new ones, and the next root with the same owner gets it (package
// frame).
//
// # Copied roots
//
// With Options.CopyBytes a small root whose blobs are all local is such a folder, too, with a copy
// of each input, verified when it is made. No file is shared or reused. Reads are those that
// images show, reported by Stats: an open counts wherever the action has moved the copy, and a
// symlink that is followed does not. OnCopyRead learns of them instead of OnBlob, as Vouch has
// nothing to verify. Every copy may be moved away as a written file; Unchanged compares contents,
// and does not recognize moved inputs. Aside has what the worker itself does in a root not counted.
//
// # Roots that are made ahead
//
// With Options.Ready the mounts of a root are made before its inputs are known, while earlier
// actions run: NewRoot then makes no system call that mounts. Only the worker can enter such a root
// before, so no action has seen it; it is used once, and released as others are. It is for an owner
// of earlier roots, with the metadata images of one of the last roots. Roots with OnLook, or with an
// image that is written while it is used, make their own mounts.
//
// # Metadata images
//
// A request to this process costs more than most of what programs do with a file. So subtrees that
// several roots had at the same path are shown without it: an EROFS image (package erofs) has the
// names and attributes of a subtree, and overlayfs takes the data of its files from Options.Blobs,
// or, if a blob is missing there, from the FUSE mount, which fetches it. Images lie above that
// mount, so that the kernel does not ask for names that they show. A root that has an entry with
// the name of the folder of the blobs, such as sha256, has no images. Images are made in the
// background from local directories, when a second root has a subtree, and stay mounted for later
// roots. Directories that are missing, and symlinks, whose reads would be invisible, are left to
// the FUSE layer, which then shows only them. Cost and gain of an image do not depend on how much
// of it is used. The first root of a large local tree has an image that is written while it is
// used; it does not show which of its symlinks are followed.
//
// # Files that arrive
//
// If the Source is an ArrivingSource, a large file is opened before it is there, and its reads wait
// for their bytes (package fuse has the details). The fetch continues when the action closes the
// file, because the bytes that it has read are not verified yet: Root.Verify waits for that. If the
// blob does not match its digest, reads and opens fail with EIO from then on, and Root.Err names
// it.
//
// # Memory
//
// A Root holds the kernel's knowledge: a node for each path that it looked up and has not
// forgotten, and a hash for each that was read. Directories belong to the Source, which may forget
// them; then they are asked for again, which is slower and counts as waiting. Nodes keep no part of
// them.
//
// # Fall-backs
//
// There is no silent fall-back: Open warns of the missing part, its cost and the remedy, or, if
// Options.Method allows no fall-back, fails with the same text. Without kernel passthrough reads
// are served from the page cache of the FUSE mount. Without FUSE, or without overlayfs above it, a
// root is a folder of hard links, which differs in this:
//
//   - NewRoot returns when every file of the tree was fetched and linked. Reads are invisible:
//     there are no hooks, no stalls and no Stats.
//   - The links point to copies of the blobs (reflinks, if the file system supports them), in the
//     upper folder; never to the store. One inode has one mode and
//     one time, so a blob has a copy for each that it is used with: an executable
//     and a plain one, and within one root a copy for each file. Copies are kept for
//     later roots, up to Options.LinkBytes, and with an overlayfs above so are whole
//     directories of links that recur; no two of these share a copy.
//   - The link count of a file is that of its copy.
//   - With an overlayfs above, writes of the action stay its own, as with
//     FUSE. Without one it may remove and replace inputs at will, but if it writes
//     to one, or changes its attributes, all roots that share the copy see it.
//     Root.Intact detects that by size, mode and modification time, for every root
//     concerned, and the copy is dropped. If a process writes through a link and then restores
//     size and time, Root.Vouch detects it by the change time.
//
// # Verification
//
// RootSpec.OnBlob reports the blobs whose bytes the action may get; its owner verifies them. This
// package verifies the files that it keeps for several roots: metadata images have a hash of their
// file, copies for hard links that of their blob, and both have the time of their last
// verification. If that is longer ago than Options.VerifyEvery, or an image's file was written to,
// they are read while the action runs, and Root.Vouch waits for that. It also reads a copy whose
// change time differs from the one that the package's own links gave it. A wrong one is not used
// again. Below an overlayfs it checks the change times of the folders of links, too: another
// process may have put another file under the name of an input.
//
// # What it refuses to do
//
// It never forks: package mounts opens the device and mounts, so no fusermount is run and children do
// not inherit the device. The worker must not open files below the FUSE mount itself (Root.Path is the
// overlay), or map them, or run programs from them: the thread that waits for FUSE could be the one
// that serves it.
//
// A process that is killed while it accesses one of its own roots, which the kernel does for it
// even when it mounts one, may wait for itself and never end. The guard that was started before
// (mounts.StartGuard) aborts its mounts, or the next Open of the same folders does.
//
// # Goroutines
//
// A Root owns the goroutines of its layers, and one that verifies files. Close ends them and waits:
// it unmounts, aborts the FUSE connection, cancels the Source's contexts, and returns when the last
// of them has ended. So a Source must return when its context ends. NewRoot waits for those that it
// starts to make links. An FS has one goroutine that removes the remains of closed roots, while
// there are any, one for each closed root whose folders are emptied, one that makes roots ahead, while
// some are wanted, and those of its images; its Close waits for the work of all of them. With
// Options.Crew those without work wait for more (package crew).
//
// # Locks
//
// FS.mu guards the set of roots, plainFolders.mu the spare folders, readyRoots.mu the roots that
// were made ahead, reads.mu the reads of a root. None is taken while another is held, and none is
// held while a Source, a hook or a layer is called.
package vfs
