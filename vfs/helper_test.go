package vfs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// fakeSource holds trees in memory and blobs in files. Tests make it fail or wait.
// What it returned of directories stays at hand until forget.
type fakeSource struct {
	dir string

	mu     sync.Mutex
	dirs   map[digest.Digest]*repb.Directory
	raw    map[digest.Digest][]byte // encoded directories that are not in dirs
	ready  map[digest.Digest]*tree.Directory
	blobs  map[digest.Digest]string        // paths
	fails  map[digest.Digest]error         // of either method
	gates  map[digest.Digest]chan struct{} // a call waits until it is closed
	asked  map[digest.Digest]int           // calls of either method
	inCall chan digest.Digest              // if not nil, told of each call that waits
}

func newFakeSource(t testing.TB) *fakeSource {
	return &fakeSource{
		dir:   t.TempDir(),
		dirs:  map[digest.Digest]*repb.Directory{},
		raw:   map[digest.Digest][]byte{},
		ready: map[digest.Digest]*tree.Directory{},
		blobs: map[digest.Digest]string{},
		fails: map[digest.Digest]error{},
		gates: map[digest.Digest]chan struct{}{},
		asked: map[digest.Digest]int{},
	}
}

func (s *fakeSource) enter(ctx context.Context, d digest.Digest) error {
	s.mu.Lock()
	s.asked[d]++
	gate, err, inCall := s.gates[d], s.fails[d], s.inCall
	s.mu.Unlock()
	if gate != nil {
		if inCall != nil {
			inCall <- d
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (s *fakeSource) Directory(ctx context.Context, d digest.Digest) (*tree.Directory, error) {
	if err := s.enter(ctx, d); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.raw[d]
	if m := s.dirs[d]; m != nil {
		var err error
		if b, err = proto.Marshal(m); err != nil {
			return nil, err
		}
	} else if b == nil {
		return nil, fmt.Errorf("no directory %s", d)
	}
	dir, err := tree.Parse(d.Function(), b)
	if err != nil {
		return nil, err
	}
	s.ready[d] = dir
	return dir, nil
}

func (s *fakeSource) LocalDirectory(d digest.Digest) (*tree.Directory, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, ok := s.ready[d]
	return dir, ok
}

// forget makes the next access to any directory ask again.
func (s *fakeSource) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.ready)
}

func (s *fakeSource) OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error) {
	if err := s.enter(ctx, d); err != nil {
		return nil, err
	}
	s.mu.Lock()
	p := s.blobs[d]
	s.mu.Unlock()
	if p == "" {
		return nil, fmt.Errorf("no blob %s", d)
	}
	return os.Open(p)
}

// blobFile is the name of a blob's file.
func blobFile(d digest.Digest) string { return fmt.Sprintf("%s-%d", d.Hash(), d.SizeBytes()) }

func (s *fakeSource) blob(t testing.TB, content string) digest.Digest {
	t.Helper()
	d := digest.Of(digest.SHA256, []byte(content))
	p := filepath.Join(s.dir, blobFile(d))
	if err := os.WriteFile(p, []byte(content), 0o444); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blobs[d] = p
	return d
}

// add stores a Directory, whose lists it sorts.
func (s *fakeSource) add(t testing.TB, m *repb.Directory) digest.Digest {
	t.Helper()
	slices.SortFunc(m.Files, func(a, b *repb.FileNode) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Directories, func(a, b *repb.DirectoryNode) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Symlinks, func(a, b *repb.SymlinkNode) int { return strings.Compare(a.Name, b.Name) })
	d, _, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirs[d] = proto.Clone(m).(*repb.Directory)
	return d
}

// tree stores what a list of paths describes and returns the root's digest:
// "a/b" is a file, "a/b!" an executable one, "a/" an empty directory, "a -> b"
// a symlink. The content of a file is its path.
func (s *fakeSource) tree(t testing.TB, paths ...string) digest.Digest {
	t.Helper()
	m := &repb.Directory{}
	below := map[string][]string{}
	for _, p := range paths {
		if first, rest, ok := strings.Cut(p, "/"); ok && !strings.Contains(first, " -> ") {
			if below[first] == nil {
				below[first] = []string{}
			}
			if rest != "" {
				below[first] = append(below[first], rest)
			}
			continue
		}
		if name, target, ok := strings.Cut(p, " -> "); ok {
			m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: name, Target: target})
			continue
		}
		name, exec := strings.CutSuffix(p, "!")
		m.Files = append(m.Files, &repb.FileNode{
			Name: name, IsExecutable: exec, Digest: s.blob(t, "content of "+name).Proto(),
		})
	}
	for name, list := range below {
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: s.tree(t, list...).Proto()})
	}
	return s.add(t, m)
}

// find returns the digest of what is at a path of the tree.
func (s *fakeSource) find(t testing.TB, root digest.Digest, p string) digest.Digest {
	t.Helper()
	dir, name := path.Split(p)
	if dir != "" {
		root = s.find(t, root, strings.TrimSuffix(dir, "/"))
	}
	s.mu.Lock()
	m := s.dirs[root]
	s.mu.Unlock()
	for _, n := range m.Files {
		if n.Name == name {
			return mustDigest(t, n.Digest)
		}
	}
	for _, n := range m.Directories {
		if n.Name == name {
			return mustDigest(t, n.Digest)
		}
	}
	t.Fatalf("no %s in the tree", p)
	return digest.Digest{}
}

func mustDigest(t testing.TB, m *repb.Digest) digest.Digest {
	t.Helper()
	d, err := digest.FromProto(digest.SHA256, m)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// gate makes calls for d wait; the function that it returns lets them go.
func (s *fakeSource) gate(d digest.Digest) (open func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := make(chan struct{})
	s.gates[d] = g
	return sync.OnceFunc(func() {
		s.mu.Lock()
		delete(s.gates, d)
		s.mu.Unlock()
		close(g)
	})
}

func (s *fakeSource) fail(d digest.Digest, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails[d] = err
}

func (s *fakeSource) calls(d digest.Digest) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[d]
}

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
	if o.Method == "" {
		o.Method = FUSE // a test that means a fall-back says so
	}
	f, err := Open(o)
	if errors.Is(err, ErrUnavailable) && os.Getenv("CI") == "" {
		t.Skip(err)
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
	if os.Getenv("CI") != "" {
		t.Fatal(reason, f.upperDir)
	}
	t.Skip(reason, f.upperDir)
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

// answer waits for the answer: what was read, or "error: …".
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
	helperOpen []*os.File // what "hold" opened; the process ends with it
	helperMaps [][]byte   // what "holdmap" mapped
)

func helperDo(op string, args []string) (string, error) {
	switch op {
	case "read":
		b, err := os.ReadFile(args[0])
		return string(b), err
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
		return string(b), err
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
