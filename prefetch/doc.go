// Package prefetch predicts which files an action will read: it remembers which files runs of
// similar actions read.
//
// A Recorder collects the reads of one run in its input root. A Profile is a set of such paths as a
// Bloom filter, in exactly the bytes of Buildbarn's File System Access Cache, so that profiles can
// be shared with such a farm.
//
// A Race, one for each run, makes the files local that the action is expected to read, by a Source
// that it shares with the action and that serves the action first.
//
// # Paths in a profile
//
// A profile has the directories whose entries a run read and the files that it opened, both by
// their path in the input root, and all their parent directories. It has no symlinks: these come
// with the Directory message that contains them. So nothing below a directory that is not in a
// profile is in it.
//
// # Records
//
// Profiles keeps records in a Store, each of them the expected reads of the next run, as a Profile,
// and their history. There are two kinds:
//
//   - exact, by the reduced action digest: the paths that any of the last four runs read. A path that
//     is read every other time is predicted; a path that is no longer read is forgotten.
//   - coarse, by the common facts of similar actions (mnemonic, tool, platform and so on): the paths
//     that 30 % of the last 32 actions read, one run of each, and at least two; files of at most 64 KiB
//     from 10 % on. It serves actions that never ran, such as those with a new source file.
//
// An exact record also has the digests of the directories that the last run read, up to 4,096, and
// of the files that it read first, up to 256. Most inputs of an action are the same the next time.
// They are looked for in at most 65,536 directories, which together have 4 million entries at most.
//
// Both also have the parts of up to 64 large files that runs read, in chunks of 64 KiB. Reads are
// visible only while a file arrives (PartReads), so runs that had it locally do not change its
// parts.
//
// A history has the hash of each path and a bit for each run, so it has no false positives. It also
// has a rank of each path in two bits: when the runs first read it, among all their reads. A run
// changes the rank of a path by one step at most, so that one odd run changes little. If runs read
// in another order each time, that alone writes a record less and less often, finally once in 32
// runs. Records without ranks count as those of paths that are read at the end. If there is only
// the filter (Buildbarn's service, Buildbarn's workers, runs of more than 32,768 paths), new paths
// are added to it until it has a quarter more than the last run read; then it is replaced.
//
// An exact record is written when a run read other paths than those before it, or when more than an
// eighth of the directories, or a quarter of the first files, differ. A coarse one changes with each
// new action and is written less often; Flush writes it. Programs that share a store overwrite each
// other's histories, and lose one run by that.
//
// # Scores
//
// After a run, Judge compares it with the record that it used, or would have used with a better
// score: of the files in local directories that the record predicts, which share the run read, in
// bytes, with 4 KiB more for each file. A record's score is a falling average of that, to which the
// latest run contributes half for an exact record, a quarter for a coarse one. A record with a
// score of at most a half (exact) or an eighth (coarse) costs more than it brings, and counts as
// none: the exact one gives way to a coarse one, and that to nearness. It is compared with runs all
// the same, and used again when it would have been right. Failed runs count half: their waste is
// the same, but they may have ended before they read what the next run will.
//
// A successful run that read no more than half of what an exact record predicted replaces the
// record, instead of joining it. If the record was right before, or new, its successor gets a score
// with which it is used. So a command that changed once has a right profile in the next run, and
// one that reads something else each time has none in the end.
//
// The score is in the record, beside Buildbarn's fields. It is written when it begins or ceases to
// be too low, and otherwise with other changes. A record from a program that has no scores takes
// over the score of what it replaces.
//
// # How a race runs
//
// The directories that the last run read are requested at once, before it is known whether they are
// in the tree: of many levels only those above a change are left. So are the files that it read
// first, as far as the link carries them in the first round trip: they are there when the command
// starts. Those that are not in the tree are forgotten when the walk has been there, and count as
// doubtful no more: a wrong record costs up to 4 MiB for them.
//
// The race walks the input tree as far as the profile does. It passes local directories at once;
// the missing ones of a level, at any depth where a local part ends, are requested in one call, so
// there is about one round trip for each level, never one for each directory. Files go in calls of
// 1,000 or 2 MiB, large ones each in a call of its own, while the walk continues.
//
// Files that are read next go first. Ranks predict the order, and the action's opens show how far
// it is; files that it should have read already go last. Large files, and those that fewer than
// half of the runs read, count as read a part later. Equal ones go in the order of the tree, as do
// all files of a profile without ranks, large files behind small ones.
//
// All calls share a link with those of the action. So the race has no more predicted bytes in
// flight than the link carries in about a round trip (pace): from 512 KiB on the window grows while
// calls take little longer than a round trip, up to 16 MiB, and shrinks while they take longer. If
// shrinking does not help, calls are slow because the machine is busy. That is only known of calls
// beside which no more was in flight than the window admits: it does not bound neighbours, nor a
// file that is larger. The races of a worker have equal shares of the window. While half of it is
// used for files that are read earlier, later ones are not requested. Large files come one after
// another if they exceed it; those of 64 MiB hold back nothing.
//
// If parts of a large file are known, they are requested like a small file, in calls of their own
// (Source.PrefetchRanges), and the whole file in its turn as a large one: an opened file must be
// verified as a whole. The parts of up to 16 files are kept until the Race stops.
//
// A profile may be wrong, so it is compared with the action's opens. Requested but unread bytes are
// in doubt. At first the race may have as many bytes in doubt as the link carries in two round
// trips, or in one if the profile is coarse, and 16 MiB or 4 MiB at most. Each predicted file that
// the action reads adds a quarter of its bytes, and as many as the link carries in a 16th of a
// round trip, but no more than seven times its bytes; from 8 MiB on, half of its bytes, and of a
// large file half a MiB. So a profile that has everything costs little more than what is read. A file
// that the walk finds after the action opened it adds that, too. A large one that was opened before
// it was requested adds it when the action opens another file: until then the action waits for it.
// A predicted file that the action opens before there is credit to request it adds, up to 8 MiB, as
// much as the link carries in a quarter of a round trip, and its neighbours do not come: they would
// take that credit. They do come if the latest files were delayed more often than not: then the
// profile has much else, or another order. Parts are cut to the remaining credit, and the others
// come later.
//
// Large files have a credit of the same size again. Calls that somebody waits for share the link
// with them until they are complete. So they also have at most as many bytes in doubt as the action
// has read of predicted files, and as the link carries in eight round trips.
//
// If a profile lacks one in sixteen of the files that the action opened lately, its large files
// yield (Source.Yield): they stand still while the action waits for something that was not
// prefetched, and as long again. Those of a right profile never do.
//
// If the action opens a file that the profile lacks, its neighbours are prefetched, before the
// profile's files; so are those of a file when the profile is no longer trusted. Half of the bytes
// of unread neighbours are in doubt, too. With the first such file some directories are fetched
// that the profile does not have, and later all; for a coarse profile at once. While three quarters
// of the latest opens were not predicted, the profile's files are not requested, and its large
// files are cancelled. A profile that lacks the root, or has a third of all possible paths, counts
// as none.
//
// So an action rarely waits more than 1.2 times as long as without a profile, whatever that has,
// plus a round trip, or the time that the link takes for the first window if that is longer. The
// exceptions read few files, or have large files that are not read: once requested, they take their
// share of the link until the action opens a file that the profile lacks.
//
// Without a profile, the directories are fetched up to a limit, because they are small and all
// reads begin with them, level by level. But the first ones that are missing below the root come
// with their whole trees, in a call for each (Source.PrefetchTree); with a profile, too, whose
// directories were others then. Few directories of a large tree may be read, so there is a lower
// limit with a profile, and a tree ends when it has brought what is known.
//
// Neighbours are as in a disk's read-ahead: when a file is opened, those behind it in its directory
// are fetched, 32 at first and more and more while they are read; of a small directory, all. So are
// those in a subdirectory with the file's name up to a dot, where a module often has its parts. When
// two subdirectories of a directory were read from, the first files of others are, up to four for
// each that proves right.
// Files above 512 KiB are fetched when they are opened. Unread neighbours never exceed 4 MiB and as
// many bytes as the action has read; and they stop when less than one in ten was read in time.
//
// # Files that others mention
//
// A source that has come names the files that are read next. So files that the action opens and
// that were not local are scanned (package mention), and so are the files that they mention, when
// these have come, and so on: about one round trip for each level. It begins with the command line.
// With a profile, nothing is scanned or requested before the action opens a file that the profile
// lacks, or that was delayed. A scan is remembered by its digest for all races of the Limits.
//
// Mentioned files are in the queue before neighbours, whose directory nobody looks at for a file
// that was mentioned, requested or not. Doubtful ones, such as imports in functions, go behind the
// others. When they have come they are scanned, too, but what they mention is doubtful again, goes
// last, and is scanned only when the action opens it, or the file that mentions it.
//
// Mentioned and unread files never exceed 4 MiB, twice the bytes of those that were read, and 512
// KiB for each that the action opened before there was credit for it: mentions that are wrong soon
// have no say. Each counts 2 KiB at least, also if the call for it failed. A profile knows better
// which of them are read: those that it has and those that it lacks each have an account, and for
// those that it lacks there are instead of 4 MiB only 256 KiB for each opened file that it lacks.
// Mentioned files are not in doubt: they do not reduce the credit of the profile.
//
// Files go in the order in which a compiler reads them, each right where it is mentioned, whenever
// they were found; those whose turn has passed go behind the others. Half of the 4 MiB is only for
// what is read next: files before which the action reads less than 1 MiB of those that are on their
// way. A file for which there was no other credit counts as one without. Half of the credit is for
// what unopened doubtful files mention. Directories on the way to a mentioned file are fetched as
// they become known, all of a level in one call.
//
// # What it refuses
//
// Everything here is a hint. Missing, malformed or broken data means "no prediction", never an
// error for the action, and data from other programs cannot take more memory or time than the
// limits in the code.
//
// # Goroutines and locks
//
// Profiles has no goroutines. A Race has one to three that walk, one that sends queued requests,
// one that handles opens, one that follows mentions, and one for each call, of which there are at
// most 16; Stop ends all of them and waits.
//
// Recorder.setMu comes before Recorder.mu; entry.mu, cache.mu, record.Careful.mu, Race.mu,
// events.mu and PartReads.mu are each alone; queue.mu comes before pace.mu. None is held during I/O
// or a callback.
package prefetch
