package mounts

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/logline"
)

func TestMain(m *testing.M) {
	MainIfGuard()
	if os.Args[0] == selfishName {
		selfishMain(os.Args[1], os.Args[2])
	}
	os.Exit(m.Run())
}

// A selfish process mounts an overlay on a FUSE mount of its own that does not answer: it says when
// it waits for itself, in mount(2).
const selfishName = "selfish"

// unanswering is a file system with a root, and no answer to statfs(2), which mount(2) of an
// overlay wants.
type unanswering struct {
	fuse.RawFileSystem
	asked func()
}

func (*unanswering) GetAttr(_ <-chan struct{}, _ *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.Ino, out.Mode, out.Nlink = 1, unix.S_IFDIR|0o755, 2
	return fuse.OK
}

func (u *unanswering) StatFs(<-chan struct{}, *fuse.InHeader, *fuse.StatfsOut) fuse.Status {
	u.asked()
	select {}
}

func selfishMain(dir, guarded string) {
	must := func(err error) {
		if err != nil {
			fmt.Println("fault:", err)
			os.Exit(1)
		}
	}
	lock, err := os.Open(dir)
	must(err)
	must(Lock(lock, dir))
	var g *Guard
	if guarded != "alone" {
		g, err = StartGuard(dir, GuardOptions{Form: logline.JSON})
		must(err)
	}
	for _, sub := range []string{"lower", "upper", "work", "root"} {
		must(os.Mkdir(filepath.Join(dir, sub), 0o755))
	}
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(err)
	must(unix.Mount("test", filepath.Join(dir, "lower"), "fuse.test", unix.MS_RDONLY, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)))
	served := &unanswering{fuse.NewDefaultRawFileSystem(), func() { fmt.Println("waits") }}
	server, err := fuse.NewServer(served, fmt.Sprintf("/dev/fd/%d", fd), &fuse.MountOptions{})
	must(err)
	go server.Serve()
	if guarded == "again" {
		must(killGuard(g))
	}
	must(unix.Mount("test", filepath.Join(dir, "root"), "overlay", 0,
		fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)))
	fmt.Println("fault: the overlay was mounted")
	os.Exit(1)
}

// killSelfish starts a selfish process and kills it while it waits for itself. The channel is
// closed when it has ended.
func killSelfish(t *testing.T, guarded string) (dir string, ended <-chan struct{}) {
	t.Helper()
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil || os.Geteuid() != 0 {
		if os.Getenv("CI") == "" {
			t.Skip("no FUSE, or not root:", err)
		}
		t.Fatal(err)
	} else {
		_ = f.Close()
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{selfishName, dir, guarded}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() {
		if err := Detach(dir); err != nil {
			t.Error(err)
		}
		<-done
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	killErr := cmd.Process.Kill()
	go func() {
		defer close(done)
		_ = cmd.Wait() // says that it was killed
	}()
	if strings.TrimSpace(line) != "waits" || err != nil || killErr != nil {
		t.Fatalf("it said %q, %v; kill: %v", line, err, killErr)
	}
	for !Dying(cmd.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
	return dir, done
}

// expectEnd waits for the end of a process that would not end by itself, ever.
func expectEnd(t *testing.T, dir string, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("the process that was killed did not end")
	}
	if left, err := Below(dir); len(left) > 0 || err != nil {
		t.Errorf("mounts left: %q, %v", left, err)
	}
}

func TestGuardFreesWhoWaitsForItself(t *testing.T) {
	dir, ended := killSelfish(t, "guarded")
	expectEnd(t, dir, ended)
}

// killGuard kills the process of a guard and returns when it has been replaced.
func killGuard(g *Guard) error {
	killed := g.Pid()
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		return err
	}
	for deadline := time.Now().Add(guardStart); g.Pid() == killed || g.Pid() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("guard %d was not replaced: %w", killed, g.Missing())
		}
	}
	return g.Missing()
}

// TestGuardIsReplaced kills the guard of a process that serves a mount. The next one does its work.
func TestGuardIsReplaced(t *testing.T) {
	dir, ended := killSelfish(t, "again")
	expectEnd(t, dir, ended)
}

// TestGuardThatCannotBeReplaced: it is known why there is none, and Close does not wait for the next
// try.
func TestGuardThatCannotBeReplaced(t *testing.T) {
	g, err := StartGuard(t.TempDir(), GuardOptions{Form: logline.JSON})
	if err != nil {
		t.Fatal(err)
	}
	if g.Missing() != nil || g.Pid() == 0 {
		t.Errorf("a new guard: %v, process %d", g.Missing(), g.Pid())
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	killed := g.Pid()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(guardStart); g.Pid() != 0 || !errors.Is(g.Missing(), syscall.EMFILE); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d, missing: %v", g.Pid(), g.Missing())
		}
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

func TestNextStartFreesWhoWaitsForItself(t *testing.T) {
	dir, ended := killSelfish(t, "alone")
	if err := Free(dir); err != nil {
		t.Error(err)
	}
	expectEnd(t, dir, ended)
}

func TestGuardEndsWithItsWorker(t *testing.T) {
	g, err := StartGuard(filepath.Join(t.TempDir(), "new"), GuardOptions{Form: logline.JSON})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.present.proc.Signal(syscall.SIGTERM); err != nil { // meant for the worker
		t.Error(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// TestStoppedGuardEnds: a worker can end whose guard somebody stopped.
func TestStoppedGuardEnds(t *testing.T) {
	g, err := StartGuard(t.TempDir(), GuardOptions{Form: logline.JSON})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(g.Pid(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// TestGuardLeavesTheLivingAlone has two guards of one folder. The guard of a process that ends
// normally must not touch the other process's mounts.
func TestGuardLeavesTheLivingAlone(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	g, err := StartGuard(dir, GuardOptions{Form: logline.JSON})
	if err != nil {
		t.Fatal(err)
	}
	point := filepath.Join(dir, "point")
	if err := os.Mkdir(point, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("test", point, "tmpfs", 0, ""); err != nil {
		if os.Getenv("CI") == "" {
			t.Skipf("mount: %v", err)
		}
		t.Fatal(err)
	}
	time.Sleep(2*guardEvery + guardEvery/2) // it has looked twice
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if left, err := Below(dir); len(left) != 1 || err != nil {
		t.Errorf("mounts %q, %v; want the one", left, err)
	}
	if err := Detach(dir); err != nil {
		t.Error(err)
	}
}

func TestFreeWithoutPredecessor(t *testing.T) {
	dir := t.TempDir()
	if err := Free(filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	if err := Lock(lock, dir); err != nil {
		t.Fatal(err)
	}
	if err := Free(dir); err != nil { // this process is alive
		t.Error(err)
	}
}
