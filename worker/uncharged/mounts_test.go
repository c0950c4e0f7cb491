package uncharged

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFileSystems mounts some in a mount namespace of one thread, which has another root then where
// the kernel shows them nevertheless, and counts them there.
func TestFileSystems(t *testing.T) {
	before, _, err := FileSystems(0)
	if errors.Is(err, unix.EPERM) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	const some = 100
	// The table of mounts has long lines.
	dir := filepath.Join(t.TempDir(), strings.Repeat("deep/", 200))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	here := Holder{Processes: []int{os.Getpid(), 1 << 30, os.Getpid()}}
	seen := Mounted(t.Context(), here, 1<<20)
	mounted, end, ended := make(chan error), make(chan struct{}), make(chan struct{})
	go onAnotherThread(func() {
		defer close(ended)
		err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
		for range some {
			if err == nil {
				err = unix.Mount("none", dir, "tmpfs", 0, "size=4k")
			}
		}
		if _, old := listed("/proc/self/ns/mnt", 1); err == nil && old == nil {
			err = unix.Chroot("/proc")
		}
		mounted <- err
		<-end
	})
	defer func() {
		close(end)
		<-ended
	}()
	if err := <-mounted; err != nil {
		t.Fatal(err)
	}
	// Numbers that others gave back come first.
	if n, _, err := FileSystems(0); err != nil || n < some || n < before+some/2 {
		t.Errorf("%d file systems, %v, after %d of %d more", n, err, some, before)
	}
	// Some of the others may come and go.
	if n := Mounted(t.Context(), here, 1<<20) - seen; n < some/2 || n > 2*some {
		t.Errorf("%d file systems more, want %d", n, some)
	}
	if n := Mounted(t.Context(), here, 10); n != 10 {
		t.Errorf("%d file systems of 10 at most", n)
	}
}

// onAnotherThread calls f on a thread that ends with it, so not on the first one.
func onAnotherThread(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != os.Getpid() {
		f()
		return
	}
	defer runtime.UnlockOSThread()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		onAnotherThread(f)
	}()
	<-ended
}

// TestBridged: some free numbers hide no file systems above.
func TestBridged(t *testing.T) {
	before, highest, err := FileSystems(0)
	if errors.Is(err, unix.EPERM) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	const some, free = 300, 20
	var made []int
	for range some {
		fs, err := makeFileSystem()
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, fs)
	}
	defer func() {
		for _, fs := range made {
			_ = unix.Close(fs)
		}
	}()
	for _, fs := range made[:free] {
		_ = unix.Close(fs)
	}
	made = made[free:]
	// Some of the others may come and go.
	if n, _, err := FileSystems(0); n > before+some/2 || err != nil {
		t.Errorf("%d file systems after %d, %v: there are no free numbers to bridge", n, before, err)
	}
	n, now, err := FileSystems(highest + some/2)
	if n < before+some/2 || n > before+some || now < highest+some-free || err != nil {
		t.Errorf("%d file systems, the highest has %d, %v; want some %d and %d", n, now, err, before+some-free, highest+some)
	}
}

// TestOwned: file systems in a namespace without processes are those of who made its user namespace.
func TestOwned(t *testing.T) {
	if _, err := Fuller(0); err != nil {
		t.Skip("only since Linux 6.12, and for root: ", err)
	}
	const some, user = 50, 1_234_567
	mount := fmt.Sprintf("for i in $(seq %d); do mount -t tmpfs none /tmp || exit 1; done; echo; cat", some)
	command := exec.Command("unshare", "--map-root-user", "unshare", "--map-root-user", "--mount", "sh", "-c", mount)
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	in, err1 := command.StdinPipe()
	out, err2 := command.StdoutPipe()
	if err := errors.Join(err1, err2, command.Start()); err != nil {
		t.Skip(err)
	}
	_, err := out.Read(make([]byte, 1))
	namespace, openErr := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", command.Process.Pid))
	_ = in.Close()
	if err := errors.Join(err, openErr, command.Wait()); err != nil {
		t.Skip("no mounts in user namespaces: ", err)
	}
	for _, c := range []struct {
		user        uint32
		least, most int
	}{{user, some, some + 100}, {user + 1, 0, 0}, {0, 0, 1 << 20}} {
		n := Mounted(t.Context(), Holder{Owns: func(u uint32) bool { return u == c.user }}, 1<<20)
		if n < c.least || n > c.most {
			t.Errorf("user %d has %d file systems, want %d to %d", c.user, n, c.least, c.most)
		}
	}
	if err := namespace.Close(); err != nil {
		t.Error(err)
	}
}

// TestPerhapsMounted guesses at what a process may have beside what it shows.
func TestPerhapsMounted(t *testing.T) {
	here := Holder{Processes: []int{os.Getpid()}, Files: true}
	before := PerhapsMounted(t.Context(), here)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.Close(pair[0]), unix.Close(pair[1]) }()
	const sent = 200
	if err := unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(slices.Repeat([]int{pair[0]}, sent)...), nil, 0); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if n := PerhapsMounted(t.Context(), here); n < before+sent+belowMount || n > before+sent+2*belowMount {
		t.Errorf("%d file systems, want %d more than %d", n, sent+belowMount, before)
	}
	m := statmount{options: 3}
	copy(m.text[:], "rw,ro,lowerdir=a:b:c,upperdir=u\x00:::")
	if n := m.layers(); n != 3 {
		t.Errorf("%d layers, want 3", n)
	}
}
