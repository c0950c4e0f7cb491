package vfs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/fuse"
	"github.com/forerunner-build/forerunner/vfs/link"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// TestForcedFallBacks takes parts of the machine away from a process, and has it open and use an
// FS. The process's message at the start must name the missing part, the cost and the remedy.
func TestForcedFallBacks(t *testing.T) {
	needPassthrough(t, openFS(t, Options{})) // here nothing is missing
	for name, c := range map[string]struct {
		without string
		got     string     // the method that Auto chooses
		says    [][]string // parts of each warning
	}{
		"nothing missing": {"", "fuse passthrough overlay", nil},
		"no CAP_SYS_ADMIN": {"capability", "hardlink", [][]string{
			{"FUSE", "operation not permitted", costOfLinks, "CAP_SYS_ADMIN"}, {"overlayfs", costOfBare, "CAP_SYS_ADMIN"},
		}},
		"no root": {"root", "hardlink", [][]string{
			{"FUSE", costOfLinks, "run as root"}, {"overlayfs", costOfBare, "run as root"},
		}},
		"no device": {"device", "hardlink overlay", [][]string{
			{"FUSE", "no such file", costOfLinks, "modprobe fuse", "--device /dev/fuse"},
		}},
		"no overlayfs": {"overlay", "hardlink", [][]string{
			{"FUSE", "mount overlay", costOfLinks, "modprobe overlay"}, {"overlayfs", costOfBare, "modprobe overlay"},
		}},
		"no FUSE in kernel": {"fuse", "hardlink overlay", [][]string{
			{"FUSE", "mount fuse: no such device", costOfLinks, "modprobe fuse"},
		}},
		"Linux before 6.9": {"passthrough", "fuse overlay", [][]string{
			{"passthrough", "inappropriate ioctl", fuse.CostOfCached, "Linux 6.9"},
		}},
		"all on overlayfs": {"disk", "hardlink", [][]string{
			{"FUSE", "mount overlay", costOfLinks, "ext4, xfs, btrfs or tmpfs"},
			{"overlayfs", costOfBare, "ext4, xfs, btrfs or tmpfs"},
		}},
		"container": {"disk capability", "hardlink", [][]string{
			{"FUSE", costOfLinks, "CAP_SYS_ADMIN"}, {"overlayfs", costOfBare},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			auto := runForced(t, c.without, Auto)
			if c.without == "disk" && auto.Got == "fuse overlay" { // a kernel that stacks overlays
				c.got = auto.Got
				c.says = [][]string{{"passthrough", fuse.CostOfCached, "ext4, xfs, btrfs or tmpfs"}}
			}
			if auto.Got != c.got || auto.Err != "" {
				t.Errorf("auto comes to %q, error %q; want %q", auto.Got, auto.Err, c.got)
			}
			assertSaid(t, auto.Warnings, c.says)
			links := runForced(t, c.without, HardLink)
			if !strings.HasPrefix(links.Got, "hardlink") || links.Err != "" {
				t.Errorf("hard links come to %q, error %q", links.Got, links.Err)
			}
			fuse := runForced(t, c.without, FUSE)
			if strings.HasPrefix(c.got, "fuse") {
				if fuse.Got != c.got || fuse.Err != "" {
					t.Errorf("FUSE comes to %q, error %q", fuse.Got, fuse.Err)
				}
				return
			}
			if fuse.Got != "" {
				t.Errorf("FUSE comes to %q", fuse.Got)
			}
			assertSaid(t, []string{fuse.Err}, [][]string{append(c.says[0][1:], ErrUnavailable.Error())})
		})
	}
}

// TestForcedCopies has a file system without hard links, as far as linkat tells.
func TestForcedCopies(t *testing.T) {
	needPassthrough(t, openFS(t, Options{}))
	r := runForced(t, "links", HardLink)
	if r.Got != "hardlink overlay" || r.Err != "" {
		t.Errorf("comes to %q, error %q", r.Got, r.Err)
	}
	assertSaid(t, r.Warnings, [][]string{{"no hard links", "operation not permitted", link.CostOfCopies, link.CopiesAdvice}})
}

func assertSaid(t *testing.T, got []string, want [][]string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("said %q, want %d warnings", got, len(want))
		return
	}
	for i, parts := range want {
		for _, part := range parts {
			if !strings.Contains(got[i], part) {
				t.Errorf("said %q, which lacks %q", got[i], part)
			}
		}
	}
}

// forced is the report of a restricted process.
type forced struct {
	Got      string // method and available parts
	Err      string
	Warnings []string
	Faults   []string // faults while it used the FS
}

func runForced(t *testing.T, without string, m Method) forced {
	t.Helper()
	dir := t.TempDir()
	for p := dir; p != os.TempDir() && len(p) > 1; p = filepath.Dir(p) {
		if err := os.Chmod(p, 0o777); err != nil { // for a process that is not root
			t.Fatal(err)
		}
	}
	h := startChild(t, "forced", dir, without, m.String())
	var r forced
	if err := json.Unmarshal([]byte(h.answer()), &r); err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Faults {
		t.Errorf("%s with %q missing: %s", m, without, f)
	}
	return r
}

// forcedMain restricts this process, starts it again in that state, and reports.
func forcedMain() {
	const again = "FORERUNNER_VFS_TEST_FORCED"
	dir, without, method := os.Args[1], os.Args[2], os.Args[3]
	if os.Getenv(again) == "" {
		runtime.LockOSThread() // the following applies to this thread, and execve keeps it
		for _, what := range strings.Fields(without) {
			if err := restrict(what, dir); err != nil {
				panic(fmt.Sprintf("take away %s: %v", what, err))
			}
		}
		exe := "/proc/self/exe"
		panic(unix.Exec(exe, append([]string{exe}, os.Args[1:]...), append(os.Environ(), again+"=1")))
	}
	if strings.Contains(without, "disk") {
		dir = filepath.Join(dir, "disk")
	}
	b, err := json.Marshal(tryForced(dir, Method(method)))
	if err == nil {
		b, err = json.Marshal(string(b))
	}
	if err != nil {
		panic(err)
	}
	fmt.Println(string(b))
}

// restrict takes a part of the machine away from the calling thread.
func restrict(what, dir string) error {
	switch what {
	case "capability":
		return unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_SYS_ADMIN, 0, 0, 0)
	case "root":
		return errors.Join(syscall.Setgroups(nil), syscall.Setgid(65534), syscall.Setuid(65534))
	case "device":
		return errors.Join(ownMounts(), unix.Mount("none", "/dev", "tmpfs", 0, ""))
	case "disk":
		return errors.Join(ownMounts(), mountDisk(dir))
	case "overlay": // as a kernel without it answers to mountOverlay
		return refuseCall(unix.SYS_MOUNT, 3, unix.MS_NODEV, unix.ENODEV)
	case "fuse": // the same for mountLower
		return refuseCall(unix.SYS_MOUNT, 3, unix.MS_NODEV|unix.MS_RDONLY, unix.ENODEV)
	case "links":
		return refuseCall(unix.SYS_LINKAT, 4, 0, unix.EPERM)
	case "passthrough": // FUSE_DEV_IOC_BACKING_OPEN, as Linux 6.8 answers to it
		return refuseCall(unix.SYS_IOCTL, 1, 0x4010e501, unix.ENOTTY)
	}
	return errors.New("unknown")
}

func ownMounts() error {
	return errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
}

// mountDisk mounts an overlayfs at dir/disk, as the root of most containers is one.
func mountDisk(dir string) error {
	var err error
	for _, sub := range []string{"disk", "l", "u", "w"} {
		err = errors.Join(err, os.Mkdir(filepath.Join(dir, sub), 0o777))
	}
	return errors.Join(err, unix.Mount("none", filepath.Join(dir, "disk"), "overlay", 0,
		fmt.Sprintf("lowerdir=%[1]s/l,upperdir=%[1]s/u,workdir=%[1]s/w", dir)))
}

// refuseCall has the kernel fail a system call whose argument arg has that value.
func refuseCall(call, arg, value uint32, errno unix.Errno) error {
	const firstArg = 16 // offset in struct seccomp_data, whose first word is the number
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: firstArg + 8*arg},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	return errors.Join(
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&f)), 0, 0))
}

// tryForced opens an FS and uses it as actions do.
func tryForced(dir string, m Method) (r forced) {
	core, logs := observer.New(zapcore.WarnLevel)
	f, err := Open(Options{
		MountDir: filepath.Join(dir, "m"), UpperDir: filepath.Join(dir, "u p"), Logger: zap.New(core), Method: m,
	})
	for _, e := range logs.All() {
		b, _ := zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "m"}).EncodeEntry(e.Entry, e.Context)
		r.Warnings = append(r.Warnings, b.String())
	}
	if err != nil {
		if !errors.Is(err, ErrUnavailable) {
			r.Faults = append(r.Faults, "another error")
		}
		r.Err = err.Error()
		return r
	}
	r.Got = f.Method().String()
	if f.Passthrough() {
		r.Got += " passthrough"
	}
	if f.means.overlay() {
		r.Got += " overlay"
	}
	tb := &childTB{dir: dir}
	useAsActions(tb, f)
	if err := f.Close(); err != nil {
		tb.Errorf("close: %v", err)
	}
	for _, d := range []string{f.mountDir, f.upperDir} {
		if left, err := os.ReadDir(d); err != nil || len(left) > 0 {
			tb.Errorf("left in %s: %v, %v", d, left, err)
		}
	}
	r.Faults = tb.faults
	return r
}

// childTB has the functions of testing.TB that a process without a test needs.
type childTB struct {
	testing.TB
	dir    string
	faults []string
}

func (t *childTB) Helper()                      {}
func (t *childTB) TempDir() string              { d, _ := os.MkdirTemp(t.dir, "t"); return d }
func (t *childTB) Errorf(s string, args ...any) { t.faults = append(t.faults, fmt.Sprintf(s, args...)) }
func (t *childTB) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }

// useAsActions has two actions share inputs, and checks the outcome.
func useAsActions(t testing.TB, f *FS) {
	src := vfstest.NewSource(t)
	root := src.Tree(t, "a/b/file", "a/tool!", "a/to -> b/file", "kept", "written", "empty/")
	var roots []*Root
	for _, name := range []string{"one", "two"} {
		r, err := f.NewRoot(context.Background(), RootSpec{Name: name, Digest: root, Source: src})
		if err != nil {
			t.Errorf("new root: %v", err)
			return
		}
		defer func() {
			if err := r.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}()
		roots = append(roots, r)
	}
	at := func(p string) string { return filepath.Join(roots[0].Path(), p) }
	for p, mode := range map[string]os.FileMode{"a/b/file": 0o444, "a/tool": 0o555, "a/to": 0o444, "kept": 0o444} {
		b, err := os.ReadFile(at(p))
		st, errStat := os.Stat(at(p))
		if err := errors.Join(err, errStat); err != nil {
			t.Errorf("%s: %v", p, err)
		} else if !strings.HasPrefix(string(b), "content of ") || st.Mode() != mode || !st.ModTime().Equal(oldTime) {
			t.Errorf("%s: %q, %v, %v", p, b, st.Mode(), st.ModTime())
		}
	}
	for _, err := range []error{
		os.Rename(at("a"), at("empty/moved")), os.WriteFile(at("out"), []byte("made"), 0o600), os.Remove(at("kept")),
	} {
		if err != nil {
			t.Errorf("%v", err)
		}
	}
	if in, ok := roots[0].Unchanged("empty/moved/tool"); !ok || in.Digest != src.Find(t, root, "a/tool") || !in.Executable {
		t.Errorf("the moved tool: %+v, %t", in, ok)
	}
	if p, ok := roots[0].Written("out"); !ok {
		t.Errorf("the output is at %q", p)
	}
	if err := errors.Join(roots[0].Intact(), roots[1].Intact()); err != nil {
		t.Errorf("%v", err)
	}
	writeInput(t, f, roots)
}

// writeInput writes to an input, which the other root must not see, or must fail of.
func writeInput(t testing.TB, f *FS, roots []*Root) {
	p := filepath.Join(roots[0].Path(), "written")
	if err := errors.Join(os.Chmod(p, 0o644), os.WriteFile(p, []byte("changed"), 0)); err != nil {
		t.Errorf("%v", err)
	}
	other, err := os.ReadFile(filepath.Join(roots[1].Path(), "written"))
	shared := err != nil || string(other) != "content of written"
	for _, r := range roots {
		if err := r.Intact(); shared != errors.Is(err, ErrInputChanged) || shared == f.means.overlay() {
			t.Errorf("shared %t, overlay %t: %v", shared, f.means.overlay(), err)
		}
	}
}
