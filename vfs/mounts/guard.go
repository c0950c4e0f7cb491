package mounts

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/logline"
)

const (
	// guardName is the argv[0] of a guard.
	guardName = "forerunner-guard"
	// guardEvery is how often a guard checks its worker. A worker that appears dead twice is dead:
	// a process that ends normally appears so for a moment.
	guardEvery = time.Second
)

// A Guard is a process that outlives this one. If this one is killed and cannot end, because it
// waits for a mount that it serves itself, the guard removes its mounts.
type Guard struct {
	proc *os.Process
	link *os.File
}

// StartGuard starts the guard of the mounts below dir, which it creates if needed, and waits until
// it is ready. The main function of the binary must begin with MainIfGuard. Like all forks, it must
// precede the first FUSE mount. The guard writes lines of that form to standard error.
func StartGuard(dir string, form logline.Form) (_ *Guard, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("start the guard of %s: %w", dir, err)
		}
	}()
	if dir, err = Folder(dir); err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	g := &Guard{link: os.NewFile(uintptr(fds[0]), "guard")}
	theirs := os.NewFile(uintptr(fds[1]), "guard's end")
	defer theirs.Close()
	g.proc, err = os.StartProcess("/proc/self/exe", []string{guardName, dir, string(form)}, &os.ProcAttr{
		Dir:   "/",
		Files: []*os.File{theirs, os.Stderr, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // Ctrl-C is for this process
	})
	if err != nil {
		return nil, errors.Join(err, g.link.Close())
	}
	_ = theirs.Close() // or its end would not be seen
	if _, err := g.link.Read(make([]byte, 1)); err != nil {
		return nil, errors.Join(fmt.Errorf("it ended (is MainIfGuard the first call of main?): %w", err), g.Close())
	}
	return g, nil
}

// Close ends the guard and waits for its end. The mounts must be gone, or others must remove them.
func (g *Guard) Close() error {
	err := g.link.Close()
	_, waitErr := g.proc.Wait()
	return errors.Join(err, waitErr)
}

// MainIfGuard must be called first in main, and in TestMain of packages that start guards, beside
// runner.MainIfLauncher. In a process that was started as a guard it does a guard's work and never
// returns; otherwise it returns at once.
func MainIfGuard() {
	if len(os.Args) != 3 || os.Args[0] != guardName {
		return
	}
	// A service manager's SIGTERM goes to all processes of a service, and the worker still drains
	// then.
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE)
	form := logline.Form(os.Args[2])
	if err := keepGuard(os.Args[1], os.Getppid(), form); err != nil {
		form.Print(os.Stderr, "error", guardName, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// keepGuard returns when the worker has ended: only then its end of standard input is closed.
func keepGuard(dir string, worker int, form logline.Form) error {
	if _, err := os.Stdin.Write([]byte{1}); err != nil {
		return nil // it has ended already
	}
	dead := false
	for !closed(guardEvery) {
		was := dead
		if dead = Dying(worker); !dead || !was {
			continue
		}
		points, err := detachWhile(dir, func() bool { return !closed(0) })
		if err != nil {
			return fmt.Errorf("free process %d, which was killed: %w", worker, err)
		}
		if points > 0 {
			form.Print(os.Stderr, "warn", fmt.Sprintf(guardName+": process %d was killed while it waited for input roots "+
				"that it served itself: took away %d mounts below %s", worker, points, dir), nil)
		}
	}
	return nil
}

// closed waits for the end of standard input so long at most.
func closed(wait time.Duration) bool {
	until := time.Now().Add(wait)
	for {
		fds := []unix.PollFd{{Fd: 0, Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(max(time.Until(until), 0)/time.Millisecond))
		if !errors.Is(err, unix.EINTR) {
			return n > 0 // nothing is ever written
		}
	}
}

// Folder creates dir if needed and returns its absolute path without symlinks.
func Folder(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("create %s: %w", dir, err)
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", fmt.Errorf("resolve folder: %w", err)
	}
	return dir, nil
}
