package uncharged

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

// patience is how long namespaces are asked: each answer waits for those who mount and unmount.
const patience = time.Second

// FullestNamespace returns the number of mounts in the fullest mount namespace of processes, up to
// most. After a second it looks at no more namespaces.
func FullestNamespace(pids []int, most int) (n int) {
	began := time.Now()
	for thread := range namespaces(context.Background(), pids) {
		if n = max(n, mountsOf(thread, most)); n >= most || time.Since(began) >= patience {
			break
		}
	}
	return n
}

// Fuller reports whether any mount namespace below this process's user namespace has more than most
// mounts, whether or not a process is in it. Unlike FullestNamespace it waits for nobody, and its
// cost does not grow with the number of threads. Linux 6.12 has it.
func Fuller(most int) (fuller bool, err error) {
	err = eachNamespace(func(_ int, mounts uint32) bool {
		fuller = mounts > uint32(most)
		return !fuller
	})
	return fuller, err
}

// eachNamespace calls look for each other mount namespace below this process's user namespace, with
// the number of its mounts, until look returns false. Linux 6.12 has it.
func eachNamespace(look func(fd int, mounts uint32) bool) error {
	for _, request := range []uintptr{nextNamespace, previousNamespace} {
		fd, err := unix.Open("/proc/self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		for goesOn := true; goesOn; {
			var at namespaceInfo
			at.size = uint32(unsafe.Sizeof(at))
			next, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&at)))
			if errno == unix.EINTR {
				continue
			}
			_ = unix.Close(fd)
			if errno == unix.ENOENT {
				break // it was the last one
			}
			if errno != 0 {
				return fmt.Errorf("look at mount namespaces: %w", errno)
			}
			fd = int(next)
			if goesOn = look(fd, at.mounts); !goesOn {
				return unix.Close(fd)
			}
		}
	}
	return nil
}

// These are NS_MNT_GET_NEXT and NS_MNT_GET_PREV (linux/nsfs.h).
const (
	nextNamespace     = 0x8010b70b
	previousNamespace = 0x8010b70c
)

// namespaceInfo is the kernel's mnt_ns_info.
type namespaceInfo struct {
	size, mounts uint32
	id           uint64
}

// namespaces returns the folder in /proc of one thread of processes in each mount namespace, until
// ctx ends.
func namespaces(ctx context.Context, pids []int) iter.Seq[string] {
	return func(yield func(string) bool) {
		seen := map[string]bool{}
		for _, pid := range pids {
			for thread := range folder.Names(filepath.Join("/proc", strconv.Itoa(pid), "task")) {
				if ctx.Err() != nil {
					return
				}
				namespace, err := os.Readlink(filepath.Join(thread, "ns/mnt"))
				if err != nil || seen[namespace] {
					continue
				}
				if seen[namespace] = true; !yield(thread) {
					return
				}
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
	return described(thread, most)
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
	id, err := namespaceID(fd)
	if err != nil {
		return 0, err
	}
	err = list(id, func(mounts []uint64) bool {
		n += len(mounts)
		return n < most
	})
	return min(n, most), err
}

// namespaceID returns the id of a mount namespace, which no other one will have. Linux 6.11 has it.
func namespaceID(fd int) (id uint64, err error) {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.NS_GET_MNTNS_ID, uintptr(unsafe.Pointer(&id)))
	if errno != 0 {
		return 0, errno
	}
	return id, nil
}

// list calls look with the ids of the mounts in a namespace, some thousand at a time, until look
// returns false.
func list(namespace uint64, look func(mounts []uint64) bool) error {
	request := mountRequest{of: wholeNamespace, namespace: namespace}
	request.size = uint32(unsafe.Sizeof(request))
	ids := make([]uint64, 4096)
	for {
		got, _, errno := unix.Syscall6(unix.SYS_LISTMOUNT, uintptr(unsafe.Pointer(&request)),
			uintptr(unsafe.Pointer(&ids[0])), uintptr(len(ids)), 0, 0, 0)
		if errno != 0 {
			return errno
		}
		if !look(ids[:got]) || int(got) < len(ids) {
			return nil
		}
		request.after = ids[got-1]
	}
}

// described counts the mounts that a thread sees by their descriptions.
func described(thread string, most int) (n int) {
	for range mountsIn(thread) {
		if n++; n >= most {
			break
		}
	}
	return n
}

// mountsIn returns the first some thousand bytes of each line of a thread's table of mounts. A
// thread that has ended has none.
func mountsIn(thread string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		f, err := os.Open(filepath.Join(thread, "mountinfo"))
		if err != nil {
			return
		}
		defer f.Close()
		begins := true
		for lines := bufio.NewReader(f); ; {
			text, err := lines.ReadSlice('\n')
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) || begins && !yield(text) {
				return
			}
			begins = err == nil
		}
	}
}
