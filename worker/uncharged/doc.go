// Package uncharged counts memory of the kernel that commands can have and that no cgroup is charged for, as far as the kernel shows
// it: locks of files, what waits in netlink sockets, and small objects of all kinds together.
//
// It decides nothing, and has no goroutines and no state.
package uncharged
