// Package vouch remembers when the bytes of a file that several roots share were last verified, so
// that they are read again only if that is too long ago. It does not know the right bytes: its
// caller reads the file, and tells the result.
//
// It has no goroutines. The lock of a Verdict is held while the file is read; no other lock is
// taken under it.
package vouch
