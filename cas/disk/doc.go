// Package disk holds content on a disk: blobs named by their digest in a folder (Store), and the
// results of actions in another (Actions).
//
// # Rooms
//
// What Store and Actions have in common is a folder of files (files) with a ledger of what is there, which decides by an index.
// A Store has its blobs in one (blobs, with the empty blob), and beside it each of these, which does not know the Store: a
// Verifier, which says which blobs are vouched for and has a checker read the others; notes, which keep that over a restart;
// possession, which says which instance names have which blobs. NewScrubber and the views that Of and Peek return
// read through these as well. Below are folder, which holds a store's folder for one process and moves away what its disk has
// lost; aside, which keeps damaged files; and tamper, which tells whether somebody else changes a file.
//
// # What it refuses
//
// A Store never shows a blob that is not whole or whose bytes it has not hashed. A file of
// somebody else becomes a blob (Take) while a lease keeps it as it was hashed, or
// by copy. It never exceeds its bound,
// what is being written included, and rather fails a write than evict a pinned
// blob. It does not sync to disk: it is a cache, which after a loss of power may have
// forgotten the latest blobs but shows no broken ones. For that it hashes again what was
// written last before the machine was started. A folder belongs to one process at
// a time. Actions does not look at the blobs a result names; cas/server does.
//
// # Verification
//
// A disk may return other bytes than were written. An index has a proof for each blob: when
// it was hashed last, and the mark (device, inode, size, change time) of its file then.
// ReadBlob hashes what it reads, and gives out nothing that is
// wrong. OpenBlob and reads of parts do not: who reads all of a file says so
// (Verifier.Reading, Verdict), and who uses such bytes has a Vouching, which
// verifies in the background what was not lately, and whose Wait says whether all that was
// used is right. What is uploaded while it is there is verified first, if it is not vouched
// for, so that an upload heals what is damaged. A damaged file is moved to the folder
// aside, and its blob is absent from then on. Proofs outlive the program in one file
// (notes), and the machine's being started in none.
//
// A key may have one file after another, which their generations tell apart. A file whose
// mark has changed is read once more before it is evicted, because those who used it can
// ask no other.
//
// # Instance names
//
// A Store shows its blobs to all, unless Options.Isolate is set. Then each blob has a set of holders in the
// index (cas/holders): the instance names for which all of its bytes have come and were hashed. Store.Of is
// the content of one of them, to which the blobs of others are missing. A blob that leaves has no holders any more.
//
// # Life of a file
//
// A file is written under tmp, then renamed to its name, which carries its
// digest and with it its size; it never changes afterwards. Evicting removes the
// name; who has it open reads on. A crash leaves nothing but files under tmp,
// which the next start removes. A full disk evicts before it fails.
//
// # Goroutines
//
// A Store has none of its own that lasts. The checker has one while there is something to
// verify that nobody waits for, and one for each verification that somebody waits for, as
// many at a time as there are cores; Close stops them. Notes are loaded by one, and written by a timer, as is
// who has which blobs.
//
// # Locks
//
// checker.mu comes before ledger.mu; notes.writing and possession.writing before ledger.mu. Vouching.mu, incoming.mu and
// possession.mu are each alone. None is held during I/O, a callback or a wait but incoming.making,
// notes.writing and possession.writing, which serialize what is done with files of their own.
package disk
