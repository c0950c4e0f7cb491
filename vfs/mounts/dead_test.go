package mounts

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseLocks(t *testing.T) {
	const table = `1: POSIX  ADVISORY  WRITE 10 fe:00:77 0 EOF
2: FLOCK  ADVISORY  WRITE 11 fe:01:77 0 EOF
3: FLOCK  ADVISORY  WRITE 12 fe:00:77 0 EOF
3: -> FLOCK  ADVISORY  WRITE 13 fe:00:78 0 EOF
4: FLOCK  ADVISORY  WRITE 0 fe:00:79 0 EOF
5: FLOCK  ADVISORY  WRITE -1 fe:00:80 0 EOF
6: LEASE
`
	for ino, want := range map[uint64]int{77: 12, 78: 0, 79: 0, 80: 0, 81: 0} {
		pid, err := parseLocks(strings.NewReader(table), &unix.Stat_t{Dev: unix.Mkdev(0xfe, 0), Ino: ino})
		if pid != want || err != nil {
			t.Errorf("inode %d: process %d, %v; want %d", ino, pid, err, want)
		}
	}
}

func TestLockHolder(t *testing.T) {
	dir := t.TempDir()
	lock, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := Lock(lock, dir); err != nil {
		t.Fatal(err)
	}
	if pid, err := lockHolder(lock); pid != os.Getpid() || err != nil {
		t.Errorf("process %d has the lock, %v; want %d", pid, err, os.Getpid())
	}
}
