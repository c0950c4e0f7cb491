// Package uncharged measures kernel memory of commands that is charged to no cgroup, as far as the
// kernel shows it: file locks, mounted file systems, data in netlink sockets, and small objects of
// all kinds together.
//
// It decides nothing, and has no goroutines and no state.
package uncharged
