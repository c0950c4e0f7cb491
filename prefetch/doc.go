// Package prefetch knows what an action will read before the action asks for it:
// it remembers what runs of similar actions read.
//
// A Recorder gathers what one run reads of its input root. A Profile is a set of
// such paths as a Bloom filter, in exactly the bytes of Buildbarn's File System
// Access Cache, so that profiles can be shared with a farm that has one.
//
// A Race, one for each run, has what the action is likely to read made local ahead
// of it, by a Source that it shares with the action and that puts the action first.
//
// # Which paths
//
// A profile has the directories whose entries a run looked at and the files that
// it opened, both by their path in the input root, and every directory above them.
// Symlinks are not in it: they come with the Directory message that has them. Thus
// nothing below a directory that is not in a profile is in it.
//
// # What is remembered
//
// Profiles keeps records in a Store, each of them the paths that the next run is
// expected to read, as a Profile, and the history behind it. There are two kinds:
//
//   - exact, by the reduced action digest: what any of the last four runs read.
//     What is read every other time is foreseen, what is read no more is forgotten.
//   - coarse, by what alike actions have in common (mnemonic, tool, platform and so
//     on): what 30 % of the last 32 actions read, one run of each, and at least two; of
//     files of at most 64 KiB what 10 % read.
//     It serves actions that never ran, such as those with a new source file.
//
// An exact record also has the digests of the directories that the last run went
// through, up to 4,096. Most inputs of an action are the same the next time.
//
// Both also have the parts of up to 64 large files that runs were seen to read, in chunks of 64 KiB. Reads can be seen while a
// file arrives (PartReads), so runs that had it here say nothing about it, and what is known stays.
//
// A history has the hash of each path and a bit for each run, so nothing in it
// is there by false positives. It also has a rank of each path in two bits: when the runs that read it
// first did, among all that they read. A run moves the rank of what it reads by one step at
// most, so that one odd run changes little. Where runs read in another order each time, that alone
// has a record written more and more seldom, once in 32 runs in the end. Records without ranks are read as those of paths that are
// read at the end. Where only the filter is left (Buildbarn's service, Buildbarn's
// workers, runs of more than 32,768 paths) new paths are added to it until it holds a
// quarter more than the last run read; then it is replaced.
//
// An exact record is written when a run read something else than those before it, or
// more than an eighth of the directories are others. A coarse one changes with each new
// action and is written more seldom; Flush writes it. Programs that share a store overwrite
// each other's histories, and what they lose is one run.
//
// # How a race runs
//
// The directories that the last run went through are asked for at once, before it is
// known whether they are in the tree: of many levels only those above a change are left.
//
// The input tree is gone through as far as the profile does. What is local is
// passed at once; all that is missing of a level, at any depth where a local part
// ends, is asked for in one call, so there is about one round trip for each level,
// never one for each directory. Files go in calls of 1,000 or 2 MiB, large ones each in a call of
// its own, while the walk goes on.
//
// What is read next goes first. Ranks say what that is, and what the action opens says how far
// it is; what it should have read already goes last. Large files, and those that fewer than half of the runs read,
// count as read a part later. What is equal then goes in the order of the tree, and so does all of a
// profile without ranks, large files behind small ones.
//
// All calls share a link with those that the action waits for. So no more is under way of what a profile foresees than the link
// carries in about a round trip (pace): from 512 KiB on it becomes more while calls take little longer than a round trip, up to
// 16 MiB, and less while they take longer. If less does not help, that is what calls take on a busy machine. The races of a
// worker have equal parts of it. While half of it is of what is read earlier, nothing is asked for that is read later. Large
// files come one after another if they exceed it; those of 64 MiB hold back nothing.
//
// Of a large file of which parts are known these are asked for like a small file, in calls of their own (Source.PrefetchRanges),
// and all of it in its turn as a large one: who opens a file needs all of it to be verified. The parts of up to 16 files are kept
// until the Race stops.
//
// A profile may be wrong, so what the action opens is weighed against it. What was asked for and is not read yet is in doubt.
// At first as much may be as the link carries in two round trips, or in one if the profile is coarse, and 16 MiB or 4 MiB at most.
// Each file that the action reads as foreseen adds a quarter of its bytes, and what the link carries in a 16th of a round trip,
// but no more than seven times its bytes. Parts are cut to what is left, and the others come later.
// Large files may be in doubt as much as is left again, and have at most eight times as many bytes as may be in doubt.
// A file that it lacks is read around, by nearness, and goes ahead of the profile's; so is one for which it is not trusted
// any more. What came so and is not read is in doubt, too. With the
// first one some directories are fetched that the profile does not name, and with more all; of a
// coarse profile at once. While three quarters of what was opened lately was not foreseen, nothing
// more is asked for on the profile's word, and its large files are given up. One that lacks the root, or has a third of all
// paths that there could be, is none. Thus whatever a profile says, an action waits at most 1.2 times as long as with none, and a
// round trip.
//
// Without a profile, the directories are fetched level by level up to a bound, for
// they are small and all reads begin with them.
//
// Nearness is what a disk reads ahead of a file: when one is opened, those behind it in its directory are fetched,
// 32 at first and ever more while they are read; when two subdirectories of one were read
// from, the beginnings of others are, up to four for each that proves right. Files
// above 512 KiB come when they are opened. What is fetched so and not read is never more
// than 4 MiB and as many bytes as the action has read; and it is given up when of the
// files that had their time less than one in ten was read.
//
// GetTree is not used: it brings all directories of a tree or none, where few of a
// large tree are read, and what was read before is known by its digest.
//
// # What it refuses
//
// Everything here is a hint. Whatever is missing, malformed or broken means "not
// foreseen", never an error for the action, and nothing that others send can take
// more memory or time than the bounds beside the code say.
//
// # Goroutines and locks
//
// What remembers has no goroutines of its own. A Race has one to three that walk, one that
// sends what is queued, one that looks at what was opened, and one for each call, of which there
// are at most 16; Stop ends all of them and waits.
//
// Recorder.setMu comes before Recorder.mu; entry.mu, cache.mu, record.Careful.mu,
// Race.mu, reads.mu and PartReads.mu are each alone; queue.mu comes before pace.mu. None is held during I/O or a callback.
package prefetch
