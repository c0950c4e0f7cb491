package outputs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/vfs"
	folders "github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/worker/fault"
)

// makeDeep makes a chain of folders below dir, two in each, and files in the last.
func makeDeep(t *testing.T, dir string, depth, files int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	check(t, err)
	for range depth {
		check(t, unix.Mkdirat(at, "d", 0o755))
		check(t, unix.Mkdirat(at, "e", 0o755))
		next, err := unix.Openat(at, "d", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		check(t, err)
		check(t, unix.Close(at))
		at = next
	}
	for i := range files {
		fd, err := unix.Openat(at, fmt.Sprintf("f%d", i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		check(t, err)
		check(t, unix.Close(fd))
	}
	check(t, unix.Close(at))
	t.Cleanup(func() { check(t, folders.RemoveTree(filepath.Join(dir, "d"))) })
}

// countOpens counts all opens on the mount at dir, and refuses those beyond most.
func countOpens(t *testing.T, dir string, most int64) *atomic.Int64 {
	t.Helper()
	const opens = unix.FAN_OPEN_PERM | unix.FAN_ONDIR
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_UNLIMITED_QUEUE|unix.FAN_CLOEXEC, unix.O_RDONLY|unix.O_LARGEFILE|unix.O_CLOEXEC)
	if err == nil {
		err = unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_MOUNT, opens, unix.AT_FDCWD, dir)
	}
	if err != nil {
		t.Fatal("count opens:", err)
	}
	n, ended := &atomic.Int64{}, make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 16<<10)
		for {
			poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			if _, err := unix.Poll(poll, 1000); err != nil && !errors.Is(err, unix.EINTR) {
				return
			}
			if n.Load() < 0 {
				return
			}
			if poll[0].Revents == 0 {
				continue
			}
			got, err := unix.Read(fd, buf)
			if err != nil {
				return
			}
			const size = int(unsafe.Sizeof(unix.FanotifyEventMetadata{}))
			for at := 0; at+size <= got; at += size {
				event := (*unix.FanotifyEventMetadata)(unsafe.Pointer(&buf[at]))
				answer := unix.FanotifyResponse{Fd: event.Fd, Response: unix.FAN_ALLOW}
				if n.Add(1) > most {
					answer.Response = unix.FAN_DENY
				}
				_, _ = unix.Write(fd, unsafe.Slice((*byte)(unsafe.Pointer(&answer)), unsafe.Sizeof(answer)))
				_ = unix.Close(int(event.Fd))
			}
		}
	}()
	t.Cleanup(func() {
		n.Store(-1 << 60)
		<-ended
		_ = unix.Close(fd)
	})
	return n
}

// TestDeepOutputsAreWalkedOnce: an output at the bottom of a deep folder costs no more opens than
// one at the top, and folders next to a deep chain do not cost the whole path.
func TestDeepOutputsAreWalkedOnce(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root, to count what is opened")
	}
	const depth, files = 1900, 1000
	root := &inputRoot{dir: t.TempDir()}
	check(t, unix.Mount("outputs-test", root.dir, "tmpfs", 0, ""))
	t.Cleanup(func() { check(t, unix.Unmount(root.dir, unix.MNT_DETACH)) })
	makeDeep(t, root.dir, depth, files)
	// Both folders of each are opened and listed; some are opened again.
	const most = 2*(2*depth) + depth*keptEvery + 3*files
	opens := countOpens(t, root.dir, most)
	o, err := collectFrom(t, root, Policy{}, "d")
	check(t, err)
	if got := opens.Load(); got > most {
		t.Errorf("%d opens, want at most %d", got, most)
	} else {
		t.Logf("%d opens", got)
	}
	if o.names != 2*(depth-1)+files || o.madeFiles != files {
		t.Errorf("%d names and %d files were seen", o.names, o.madeFiles)
	}
}

// TestCollectingTakesNoLongerThanItMay has a disk that answers after a minute.
func TestCollectingTakesNoLongerThanItMay(t *testing.T) {
	for wait, late := range map[time.Duration]bool{time.Second: false, time.Minute: true} {
		root := &inputRoot{dir: t.TempDir(), inputs: map[string]vfs.Input{}, look: func() { time.Sleep(wait) }}
		check(t, os.Mkdir(filepath.Join(root.dir, "out"), 0o755))
		for i := range 20 {
			check(t, os.WriteFile(filepath.Join(root.dir, "out", fmt.Sprint(i)), nil, 0o644))
		}
		synctest.Test(t, func(t *testing.T) {
			_, err := collectFrom(t, root, Policy{}, "out")
			if !late {
				check(t, err)
				return
			}
			s := fault.Status(t.Context(), err)
			if s.Code() != codes.DeadlineExceeded || !strings.Contains(s.Message(), "return fewer files") {
				t.Errorf("the client is told %v", s)
			}
		})
	}
}
