package uncharged

import (
	"bufio"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// patience is how long namespaces are asked: each answer waits for those who mount and unmount.
const patience = time.Second

// FullestNamespace counts the mounts in the one of the mount namespaces of processes that has most,
// up to most. It asks no further namespace after a second.
func FullestNamespace(pids []int, most int) (n int) {
	began := time.Now()
	eachNamespace(pids, func(thread string) bool {
		n = max(n, mountsOf(thread, most))
		return n < most && time.Since(began) < patience
	})
	return n
}

// eachNamespace calls do for a thread of processes in each mount namespace, until it returns false.
func eachNamespace(pids []int, do func(thread string) bool) {
	seen := map[string]bool{}
	for _, pid := range pids {
		threads := filepath.Join("/proc", strconv.Itoa(pid), "task")
		names, err := os.ReadDir(threads)
		if err != nil {
			continue // it has ended
		}
		for _, name := range names {
			thread := filepath.Join(threads, name.Name())
			namespace, err := os.Readlink(filepath.Join(thread, "ns/mnt"))
			if err != nil || seen[namespace] {
				continue
			}
			if seen[namespace] = true; !do(thread) {
				return
			}
		}
	}
}

// mountsOf counts the mounts that a thread sees. A kernel before Linux 6.11 has no list of them
// apart from their descriptions.
func mountsOf(thread string, most int) int {
	if n, err := listed(filepath.Join(thread, "ns/mnt"), most); err == nil {
		return n
	}
	return described(filepath.Join(thread, "mountinfo"), most)
}

// mountRequest is the kernel's mnt_id_req.
type mountRequest struct {
	size, _   uint32
	of        uint64
	after     uint64
	namespace uint64
}

// wholeNamespace is LSMT_ROOT (linux/mount.h).
const wholeNamespace = math.MaxUint64

// listed counts the mounts of a namespace. Each list waits once for those who mount and unmount;
// descriptions do so for every page of text.
func listed(namespace string, most int) (n int, err error) {
	fd, err := unix.Open(namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	request := mountRequest{of: wholeNamespace}
	request.size = uint32(unsafe.Sizeof(request))
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.NS_GET_MNTNS_ID, uintptr(unsafe.Pointer(&request.namespace))); errno != 0 {
		return 0, errno
	}
	ids := make([]uint64, 4096)
	for n < most {
		got, _, errno := unix.Syscall6(unix.SYS_LISTMOUNT, uintptr(unsafe.Pointer(&request)),
			uintptr(unsafe.Pointer(&ids[0])), uintptr(len(ids)), 0, 0, 0)
		if errno != 0 {
			return 0, errno
		}
		if n += int(got); int(got) < len(ids) {
			break
		}
		request.after = ids[got-1]
	}
	return min(n, most), nil
}

// described counts the lines of a table of mounts, however long they are.
func described(table string, most int) (n int) {
	f, err := os.Open(table)
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewReader(f); n < most; {
		switch _, err := lines.ReadSlice('\n'); {
		case err == nil:
			n++
		case !errors.Is(err, bufio.ErrBufferFull):
			return n
		}
	}
	return n
}
