// Package disk holds content on a disk: blobs named by their digest in a folder (Store), and the
// results of actions in another (Actions).
//
// # Structure
//
// Store and Actions share a folder of files (files) with a ledger of its contents, which decides by
// an index. A Store has its blobs in one (blobs, with the empty blob). Beside it are these parts,
// which do not know the Store: a Verifier, which knows the verified blobs and makes a checker read
// the others; notes, which keep that over a restart; possession, which knows the blobs of each
// instance name. NewScrubber and the views of Of and Peek read through these as well. The packages
// below are folder, which holds a store's folder for one process and removes what its disk has
// lost; aside, which keeps damaged files; and tamper, which detects changes of a file by others.
//
// # Guarantees
//
// A Store never shows an incomplete blob or one whose bytes it has not hashed. A foreign file
// becomes a blob (Take) while a lease keeps it as it was hashed, or by copy. The store never
// exceeds its limit, including files being written, and rather fails a write than evict a pinned
// blob. It does not sync to disk: it is a cache, which after a power failure may have lost the
// latest blobs but shows no broken ones. For that it hashes again all files that were written
// shortly before the machine started. A folder belongs to one process at a time. Actions does not
// check the blobs in a result; cas/server does.
//
// # Verification
//
// A disk may return other bytes than were written. An index has a proof for each blob: the time of
// the last hash, and the mark (device, inode, size, change time) of its file then. ReadBlob hashes
// the bytes, and never returns wrong ones. OpenBlob and partial reads do not hash: a caller that
// reads a whole file reports the result (Verifier.Reading, Verdict), and a caller that uses such
// bytes has a Vouching, which verifies stale blobs in the background, and whose Wait says whether
// all used bytes are right. If an uploaded blob exists already and is not verified, the store
// verifies it first, so an upload repairs damage. A damaged file is moved to the folder aside, and
// its blob is missing from then on. Proofs survive a restart of the program in one file (notes);
// they are void after a restart of the machine.
//
// A key may have one file after another, which their generations distinguish. A file with a changed
// mark is read once more before it is evicted, because its users have no other way to find out.
//
// # Instance names
//
// A Store shows its blobs to all, unless Options.Isolate is set. Then each blob has a set of
// holders in the index (cas/holders): the instance names that have uploaded all of its bytes, which
// were hashed. Store.Of is the content of one of them, without the blobs of others. An evicted blob
// has no holders any more.
//
// # Life of a file
//
// A file is written under tmp, then renamed to its name, which includes its digest and its size; it
// never changes afterwards. An eviction removes the name; open files stay readable. A crash leaves
// only files under tmp, which the next start removes. A full disk evicts before it fails.
//
// # Goroutines
//
// A Store has no permanent goroutine. The checker has one while there are verifications without a
// waiting caller, and one for each verification with one, at most as many at a time as cores, and
// for each, up to a limit, that goes on although its caller has left; Close stops them. One
// goroutine loads notes, and timers write them and the holders.
//
// # Locks
//
// checker.mu comes before ledger.mu; notes.writing and possession.writing before ledger.mu. Nobody
// holds two of Vouching.mu, incoming.mu and possession.mu. None is held during I/O, a callback or a
// wait, except incoming.making, notes.writing and possession.writing, which serialize access to
// private files.
package disk
