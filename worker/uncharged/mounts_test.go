package uncharged

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

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
	here := []int{os.Getpid(), 1 << 30, os.Getpid()}
	seen := Mounted(t.Context(), here, maxNumber, 1<<20)
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
	if n := Mounted(t.Context(), here, maxNumber, 1<<20) - seen; n < some/2 || n > 2*some {
		t.Errorf("%d file systems more, want %d", n, some)
	}
	if n := Mounted(t.Context(), here, maxNumber, 10); n != 10 {
		t.Errorf("%d file systems of 10 at most", n)
	}
	if n := Mounted(t.Context(), here, 5, 1<<20); n > 5 {
		t.Errorf("%d file systems with the numbers 1 to 5", n)
	}
}

// onAnotherThread calls f on a thread that ends with it, so not on the first one.
func onAnotherThread(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			onAnotherThread(f)
			runtime.UnlockOSThread()
			return
		}
		f()
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
	if n < before+some/2 || n > before+some || now < highest+some/2 || err != nil {
		t.Errorf("%d file systems, the highest has %d, %v; want some %d and %d", n, now, err, before+some-free, highest+some-free)
	}
}

// ways to hold some file systems that no mounts show, by this process, which is in dir. They end with it
// or with the test.
var ways = map[string]func(t *testing.T, dir string, some int) error{
	"open": func(t *testing.T, dir string, some int) error {
		return inNamespace(func() error {
			return again(some, func() error {
				_, err := openBelow(t, dir)
				return err
			})
		})
	},
	"mapped": func(t *testing.T, dir string, some int) error {
		return inNamespace(func() error {
			return again(some, func() error {
				fd, err := openBelow(t, dir)
				if err != nil {
					return err
				}
				file, err := unix.Openat(fd, "file", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
				if err != nil {
					return err
				}
				text, err := unix.Mmap(file, 0, 1, unix.PROT_READ, unix.MAP_SHARED)
				t.Cleanup(func() { _ = unix.Munmap(text) })
				return errors.Join(err, unix.Close(file), unix.Close(fd))
			})
		})
	},
	"mounted, with a description that is long": func(t *testing.T, dir string, some int) error {
		// The table of mounts has four characters for each of these.
		deep := filepath.Join(dir, "tmpfs", strings.Repeat(strings.Repeat("\n", 250)+"/", 5))
		on := filepath.Join(dir, "bound")
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "tmpfs"), 0o700), os.Mkdir(on, 0o700)); err != nil {
			return err
		}
		return stayInNamespace(t, func() error {
			return again(some, func() error {
				return errors.Join(
					mountAll(filepath.Join(dir, "tmpfs"), 1), os.MkdirAll(deep, 0o700),
					unix.Mount(deep, on, "", unix.MS_BIND, ""), unix.Unmount(filepath.Join(dir, "tmpfs"), unix.MNT_DETACH),
				)
			})
		})
	},
	"in a namespace that is open": func(t *testing.T, dir string, some int) error {
		return inNamespace(func() error { return errors.Join(mountAll(dir, some), openOwn(t)) })
	},
	"in a namespace that is mounted": func(t *testing.T, dir string, some int) error {
		return stayInNamespace(t, func() error { return mountNamespace(dir, some) })
	},
	"in a namespace that is mounted in one that is open": func(t *testing.T, dir string, some int) error {
		return inNamespace(func() error { return errors.Join(mountNamespace(dir, some), openOwn(t)) })
	},
}

// inNamespace calls f on a thread in a mount namespace of its own, which ends with it.
func inNamespace(f func() error) (err error) {
	onAnotherThread(func() { err = inOwnNamespace(f) })
	return err
}

// inOwnNamespace calls f, and leaves the thread in the namespace.
func inOwnNamespace(f func() error) error {
	err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	if err != nil {
		return err
	}
	return f()
}

// stayInNamespace calls f likewise. The thread ends with the test.
func stayInNamespace(t *testing.T, f func() error) error {
	ready, end := make(chan error, 2), make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		ready <- inNamespace(func() error {
			ready <- f()
			<-end
			return nil
		})
	})
	t.Cleanup(func() { close(end); ended.Wait() })
	return <-ready
}

func again(some int, f func() error) error {
	for range some {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

func mountAll(dir string, some int) error {
	return again(some, func() error { return unix.Mount("none", dir, "tmpfs", 0, "size=4k") })
}

// openBelow opens a file system that is then mounted nowhere.
func openBelow(t *testing.T, dir string) (fd int, err error) {
	if err := mountAll(dir, 1); err != nil {
		return 0, err
	}
	fd, err = unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd, errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH))
}

// openOwn opens the mount namespace of the calling thread.
func openOwn(t *testing.T) error {
	f, err := os.Open("/proc/thread-self/ns/mnt")
	t.Cleanup(func() { _ = f.Close() })
	return err
}

// mountNamespace mounts a namespace that has some file systems mounted, and no process.
//
// The kernel mounts a namespace only in one with a smaller number, and each CPU has numbers of its
// own to give (since Linux 6.18), so the other namespace is made on each CPU until one will do.
func mountNamespace(dir string, some int) error {
	if err := mountAll(dir, 1); err != nil {
		return err
	}
	on := filepath.Join(dir, "namespace")
	if err := os.WriteFile(on, nil, 0o600); err != nil {
		return err
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return err
	}
	err := error(unix.EINVAL)
	for cpu := 0; allowed.Count() > 0 && errors.Is(err, unix.EINVAL); cpu++ {
		if allowed.IsSet(cpu) {
			allowed.Clear(cpu)
			err = mountNamespaceOf(cpu, dir, on, some)
		}
	}
	return err
}

func mountNamespaceOf(cpu int, dir, on string, some int) error {
	thread, isMounted, ended := make(chan int), make(chan struct{}), make(chan error, 1)
	go onAnotherThread(func() {
		var only unix.CPUSet
		only.Set(cpu)
		if err := unix.SchedSetaffinity(0, &only); err != nil {
			ended <- err
			return
		}
		ended <- inOwnNamespace(func() error {
			if err := mountAll(dir, some); err != nil {
				return err
			}
			thread <- unix.Gettid()
			<-isMounted
			return nil
		})
	})
	select {
	case tid := <-thread:
		err := unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/mnt", tid), on, "", unix.MS_BIND, "")
		close(isMounted)
		return errors.Join(err, <-ended)
	case err := <-ended:
		return err
	}
}

// TestHeld: file systems that no mounts of a process show are its own if it holds them.
func TestHeld(t *testing.T) {
	if _, err := Fuller(0); err != nil {
		t.Skip("only since Linux 6.12, and for root: ", err)
	}
	const some = 200
	here := []int{os.Getpid()}
	for name, hold := range ways {
		t.Run(name, func(t *testing.T) {
			held, mounted := Held(t.Context(), here, 1<<20), Mounted(t.Context(), here, maxNumber, 1<<20)
			if err := hold(t, t.TempDir(), some); err != nil {
				t.Fatal(err)
			}
			// Some of the others may come and go.
			for !strings.HasPrefix(name, "mounted") && Mounted(t.Context(), here, maxNumber, 1<<20) > mounted+some/2 {
				time.Sleep(time.Millisecond) // a thread ends
			}
			if n := Held(t.Context(), here, 1<<20) - held; n < some-some/4 || n > some+some/4 {
				t.Errorf("%d file systems more, want %d", n, some)
			}
			if n := Held(t.Context(), here, mounted+some/2); n != mounted+some/2 {
				t.Errorf("%d file systems of %d at most", n, mounted+some/2)
			}
		})
	}
}

// TestEndedNamespace: what has the number of a namespace that a process had open is not its own.
func TestEndedNamespace(t *testing.T) {
	if _, err := Fuller(0); err != nil {
		t.Skip("only since Linux 6.12, and for root: ", err)
	}
	const some, patience = 200, 50
	var own unix.Stat_t
	m, fd := newMounts(maxNumber, 1<<20), -1
	onAnotherThread(func() {
		if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
			t.Error(err)
			return
		}
		fd, _ = unix.Open("/proc/thread-self/ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err := unix.Fstat(fd, &own); err != nil {
		t.Fatal(err)
	}
	m.at(t.Context(), fmt.Sprintf("/proc/self/fd/%d", fd))
	_ = unix.Close(fd)
	var other unix.Stat_t
	for i := 0; other.Ino != own.Ino; i++ {
		if i == patience {
			t.Skip("no namespace gets the number of the one that ended")
		}
		err := stayInNamespace(t, func() error {
			return errors.Join(mountAll(t.TempDir(), some), unix.Stat("/proc/thread-self/ns/mnt", &other))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if m.ofNamespaces(t.Context()); m.n() > 0 {
		t.Errorf("%d file systems, all of another namespace", m.n())
	}
	// Likewise where it was mounted.
	m.wanted[own.Ino] = mount{namespace: 1, id: 1}
	if m.ofNamespaces(t.Context()); m.n() > 0 {
		t.Errorf("%d file systems, all of another namespace than was mounted", m.n())
	}
}

// TestNumbers: an overlay has two, and the second one may be that of an open file.
func TestNumbers(t *testing.T) {
	c := newNumbers()
	for i, step := range []struct {
		do   func()
		want int
	}{
		{func() { c.mount(1, false) }, 1},
		{func() { c.open(1) }, 1},
		{func() { c.mount(2, true) }, 3},
		{func() { c.open(3) }, 3},
		{func() { c.open(4) }, 4},
		{func() { c.mount(5, true) }, 5},
		{func() { c.mount(4, false) }, 6},
		{func() { c.mount(5, true) }, 6},
	} {
		if step.do(); c.n() != step.want {
			t.Errorf("step %d: %d file systems, want %d", i, c.n(), step.want)
		}
	}
}
