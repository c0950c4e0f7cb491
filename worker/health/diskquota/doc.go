// Package diskquota finds the quotas that limit writes below a folder, and the rest of each. The
// kernel enforces them on each write, but statfs shows none of them. (Quotas of projects are shown
// by statfs.)
//
// It supports quota groups of btrfs, and quotas of users and groups if the kernel has quotactl_fd
// (Linux 5.14). It cannot detect quotas of a server, as of NFS. It starts no goroutines.
package diskquota
