package vfs

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/crew"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// openFS opens an FS in fresh folders. Where the machine cannot, the test is
// skipped, or fails if CI is set.
func openFS(t testing.TB, o Options) *FS {
	t.Helper()
	if o.MountDir == "" {
		dir := t.TempDir()
		o.MountDir, o.UpperDir = filepath.Join(dir, "mounts"), filepath.Join(dir, "upper")
	}
	if o.Logger == nil {
		o.Logger = zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	}
	o.Crew = crew.New(16)
	if o.Method == "" {
		o.Method = FUSE // a test that means a fall-back says so
	}
	f, err := Open(o)
	if errors.Is(err, ErrUnavailable) {
		lacks(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if left, err := mounts.Below(f.mountDir); err != nil || len(left) > 0 {
			t.Errorf("mounts left: %q, %v", left, err)
			_ = mounts.Detach(f.mountDir)
		}
		for _, dir := range []string{f.mountDir, f.upperDir} {
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left in %s: %v", dir, left)
			}
		}
	})
	return f
}

// openRoot mounts a root, which the test closes.
func openRoot(t testing.TB, f *FS, spec RootSpec) *Root {
	t.Helper()
	if spec.Name == "" {
		spec.Name = "root"
	}
	r, err := f.NewRoot(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// bothWays runs a test with passthrough, where the kernel has it, and without.
func bothWays(t *testing.T, test func(t *testing.T, f *FS)) {
	t.Run("passthrough", func(t *testing.T) {
		f := openFS(t, Options{})
		needPassthrough(t, f)
		test(t, f)
	})
	t.Run("cached", func(t *testing.T) {
		test(t, openFS(t, Options{DisablePassthrough: true}))
	})
}

func needPassthrough(t *testing.T, f *FS) {
	t.Helper()
	if f.Passthrough() {
		return
	}
	const reason = "the kernel has no passthrough (Linux 6.9), or not for the file system of "
	lacks(t, reason, f.upperDir)
}

// lacks ends the test because the machine lacks something: skipped, but failed under CI.
func lacks(t testing.TB, what ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(what...)
	}
	t.Skip(what...)
}

// helper is a child process, started before the root is mounted, which uses the
// root as a command of an action would: killable, mapping and running files.
type helper struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// childMode selects what this binary does when it is started as a child.
const childMode = "FORERUNNER_VFS_TEST_CHILD"

func TestMain(m *testing.M) {
	switch mode := os.Getenv(childMode); mode {
	case "", "images":
		os.Exit(m.Run())
	case "helper":
		helperMain()
	case "server":
		serverMain()
	case "forced":
		forcedMain()
	case "killed":
		killedMain()
	default:
		panic("unknown child mode " + mode)
	}
}

func startChild(t testing.TB, mode string, args ...string) *helper {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), childMode+"="+mode)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h := &helper{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return h
}

// ask sends a request without waiting for the answer.
func (h *helper) ask(op string, args ...string) {
	h.t.Helper()
	b, err := json.Marshal(append([]string{op}, args...))
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.in.Write(append(b, '\n')); err != nil {
		h.t.Fatal(err)
	}
}

// answer returns the helper's answer: the bytes read, or "error: …".
func (h *helper) answer() string {
	h.t.Helper()
	line, err := h.out.ReadString('\n')
	if err != nil {
		h.t.Fatalf("helper: %v", err)
	}
	var s string
	if err := json.Unmarshal([]byte(line), &s); err != nil {
		h.t.Fatal(err)
	}
	return s
}

func (h *helper) do(op string, args ...string) string {
	h.t.Helper()
	h.ask(op, args...)
	return h.answer()
}

func helperMain() {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			os.Exit(0)
		}
		var req []string
		if err := json.Unmarshal([]byte(line), &req); err != nil {
			panic(err)
		}
		out, err := helperDo(req[0], req[1:])
		if err != nil {
			out = "error: " + err.Error()
		}
		b, _ := json.Marshal(out)
		fmt.Println(string(b))
	}
}

var (
	helperOpen []*os.File // files that "hold" opened, until the process ends
	helperMaps [][]byte   // maps that "holdmap" made
)

func helperDo(op string, args []string) (string, error) {
	switch op {
	case "read":
		b, err := os.ReadFile(args[0])
		return brief(b), err
	case "stat":
		_, err := os.Lstat(args[0])
		return "ok", err
	case "hold":
		f, err := os.Open(args[0])
		helperOpen = append(helperOpen, f)
		return "ok", err
	case "reread":
		f := helperOpen[len(helperOpen)-1]
		b := make([]byte, 1<<10)
		n, err := f.ReadAt(b, 0)
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return string(b[:n]), err
	case "chdir":
		return "ok", os.Chdir(args[0])
	case "map":
		b, err := mapFile(args[0])
		return brief(b), err
	case "holdmap":
		b, err := mapFile(args[0])
		helperMaps = append(helperMaps, b)
		return "ok", err
	case "touch": // the first byte of the last map
		return firstByte(helperMaps[len(helperMaps)-1])
	case "unshare":
		return "ok", unshareMounts()
	case "clone":
		fd, err := unix.OpenTree(unix.AT_FDCWD, args[0], unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		helperOpen = append(helperOpen, os.NewFile(uintptr(max(fd, 0)), args[0]))
		return "ok", err
	case "operate":
		return operate(args[0], args[1])
	case "manyroots":
		return serveManyRoots(args[0], args[1])
	case "walk":
		n, err := walkAll(args[0])
		return strconv.Itoa(n), err
	case "run":
		out, err := exec.Command(args[0], args[1:]...).Output()
		return string(out), err
	}
	return "", fmt.Errorf("unknown operation %s", op)
}

// brief returns content, or the digest of a large one: as JSON it would take seconds with the race
// detector.
func brief(content []byte) string {
	if len(content) <= 64<<10 {
		return string(content)
	}
	return fmt.Sprintf("%d bytes, SHA-256 %x", len(content), sha256.Sum256(content))
}

func mapFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
}

// firstByte returns the first byte, or says that the kernel does not let it.
func firstByte(b []byte) (s string, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("fault: %v", v)
		}
	}()
	return string(b[:1]), nil
}
