// Package follow finds the files that an action is likely to read because files that it has read, or
// its command line, mention them.
//
// A Follower is told what the action opens and what has come. It scans what was absent before the
// action opened it, what was fetched because of a mention, and so on. Local files are scanned only
// once something was absent, and with a profile only those that it lacks. Results are kept by
// digest, for all actions of a worker. Mentioned and unread bytes are limited by those of mentioned
// files that the action has read: mentions that are wrong soon have no say.
//
// One goroutine runs a Follower. Follower.mu is alone, and not held during I/O or a callback.
package follow
