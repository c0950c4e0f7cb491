// Package diskquota finds the quotas that bound what may be written below a folder, and how much of each is left. The
// kernel counts them as it refuses writes, at once: statfs shows none of them. (Quotas of projects are shown by statfs.)
//
// It knows quota groups of btrfs, and quotas of users and groups where the kernel has quotactl_fd (Linux 5.14). Quotas that a
// server keeps, as of NFS, cannot be known. It starts no goroutines.
package diskquota
