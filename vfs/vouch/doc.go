// Package vouch remembers when the bytes of a file that several roots share were last seen to be
// right, so that who relies on them has them read again only when that is too long ago.
//
// It refuses to know what the bytes should be: its caller reads the file, and says. It has no
// goroutines. The lock of a Verdict is held while the file is read; no other is taken by it.
package vouch
