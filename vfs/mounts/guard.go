package mounts

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/logline"
)

const (
	// guardName is the argv[0] of a guard.
	guardName = "forerunner-guard"
	// guardEvery is how often a guard checks its worker. A worker that appears dead twice is dead:
	// a process that ends normally appears so for a moment.
	guardEvery = time.Second
	// guardStart is how long a guard may take to start.
	guardStart = 10 * time.Second
	// guardEnd is how long a guard may take to end: one that somebody stopped does not end by itself.
	// To kill one does no harm then, as there is nothing to guard.
	guardEnd = 500 * time.Millisecond
	// A guard that ends is replaced at once, or after firstPause if it did not live for longer than
	// mostPause, and then each time after twice as long, up to mostPause.
	firstPause, mostPause = time.Second, 30 * time.Second
)

// GuardOptions are the options of StartGuard.
type GuardOptions struct {
	// Form is how the guard writes lines of its own to standard error.
	Form   logline.Form
	Logger *zap.Logger // nil logs nothing
}

// A Guard is a process that outlives this one. If this one is killed and cannot end, because it
// waits for a mount that it serves itself, the guard removes its mounts. If the guard is killed,
// another one takes its place. Its methods may be called for nil: there is nothing to guard.
type Guard struct {
	dir  string
	o    GuardOptions
	stop chan struct{} // closed by Close
	done chan struct{} // closed when no process is left, after err is set
	err  error         // of the end of the last process

	mu      sync.Mutex
	present *guardian // nil: there is none; guarded by mu, as is missing
	missing error     // why there is none
}

// A guardian is the process of a Guard.
type guardian struct {
	proc *os.Process
	link *os.File
	born time.Time
}

// StartGuard starts the guard of the mounts below dir, which it creates if needed, and waits until
// it is ready. The main function of the binary must begin with MainIfGuard. Like all forks, it must
// precede the first FUSE mount; a guard that was killed may be replaced later, because the binary and
// its working directory are on no such mount.
func StartGuard(dir string, o GuardOptions) (*Guard, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	dir, err := Folder(dir)
	g := &Guard{dir: dir, o: o, stop: make(chan struct{}), done: make(chan struct{})}
	if err == nil {
		g.present, err = g.start()
	}
	if err != nil {
		return nil, fmt.Errorf("start the guard of %s: %w", dir, err)
	}
	go g.keep(g.present)
	return g, nil
}

// start starts a process and waits until it is ready.
func (g *Guard) start() (*guardian, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	nonblock := unix.SetNonblock(fds[0], true) // for the deadline
	theirs := os.NewFile(uintptr(fds[1]), "guard's end")
	defer theirs.Close()
	n := &guardian{link: os.NewFile(uintptr(fds[0]), "guard"), born: time.Now()}
	if nonblock != nil {
		return nil, errors.Join(nonblock, n.link.Close())
	}
	n.proc, err = os.StartProcess("/proc/self/exe", []string{guardName, g.dir, string(g.o.Form)}, &os.ProcAttr{
		Dir:   "/",
		Files: []*os.File{theirs, os.Stderr, os.Stderr},
		// Ctrl-C is for this process. The session shows package runner that it is no command's.
		Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return nil, errors.Join(err, n.link.Close())
	}
	_ = theirs.Close() // or its end would not be seen
	err = n.link.SetReadDeadline(time.Now().Add(guardStart))
	if err == nil {
		_, err = n.link.Read(make([]byte, 1))
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		_ = n.proc.Kill()
		return nil, errors.Join(fmt.Errorf("it does not start within %s", guardStart), n.end())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("it ended (is MainIfGuard the first call of main?): %w", err), n.end())
	}
	return n, nil
}

// end ends the process and waits for its end.
func (n *guardian) end() error {
	err := n.link.Close()
	_, waitErr := n.proc.Wait()
	return errors.Join(err, waitErr)
}

// keep replaces processes that end, until Close.
func (g *Guard) keep(n *guardian) {
	defer close(g.done)
	for pause := time.Duration(0); ; {
		ended := make(chan error, 1)
		go func() {
			state, err := n.proc.Wait()
			if err == nil {
				err = fmt.Errorf("guard %d ended: %s", n.proc.Pid, state)
			}
			ended <- err
		}()
		select {
		case <-g.stop:
			g.err = n.link.Close()
			select {
			case <-ended:
			case <-time.After(guardEnd):
				_ = n.proc.Kill() // it may have ended just now
				<-ended
			}
			return
		case err := <-ended:
			_ = n.link.Close()
			g.lacks(nil, err)
			g.o.Logger.Warn("the guard of input roots was killed; starting another one", zap.Error(err))
		}
		if time.Since(n.born) > mostPause {
			pause = 0
		}
		if n = g.replace(&pause); n == nil {
			return
		}
		g.lacks(n, nil)
		g.o.Logger.Info("input roots have a guard again", zap.Int("pid", n.proc.Pid))
	}
}

// replace starts a process, after a pause, as often as it takes; nil: Close was called.
func (g *Guard) replace(pause *time.Duration) *guardian {
	for {
		select {
		case <-g.stop:
			return nil
		case <-time.After(*pause):
		}
		*pause = min(max(2**pause, firstPause), mostPause)
		n, err := g.start()
		if err == nil {
			return n
		}
		g.lacks(nil, err)
		g.o.Logger.Warn("input roots have no guard", zap.Duration("again_in", *pause), zap.Error(err))
	}
}

func (g *Guard) lacks(present *guardian, missing error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.present, g.missing = present, missing
}

// Missing returns why there is no process now; nil: there is one.
func (g *Guard) Missing() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.missing
}

// Pid returns the number of the process; 0: there is none now.
func (g *Guard) Pid() int {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.present == nil {
		return 0
	}
	return g.present.proc.Pid
}

// Close ends the guard and waits for its end. The mounts must be gone, or others must remove them.
func (g *Guard) Close() error {
	if g == nil {
		return nil
	}
	close(g.stop)
	<-g.done
	return g.err
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
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGPIPE, unix.SIGTTOU)
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
