// Package diskquota finds the quotas that limit writes below a folder, and the unused part of each.
// The kernel enforces them on each write, but statfs shows none of them, except quotas of projects.
//
// It supports quota groups of btrfs, and quotas of users and groups if the kernel has quotactl_fd
// (Linux 5.14). It cannot detect the quotas of a server, such as an NFS server. It starts no
// goroutines.
package diskquota
