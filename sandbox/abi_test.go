package sandbox_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// call32 is a program that makes one system call of the 32-bit ABI, and ends with its error.
func call32(number uint32, args ...uint32) []byte {
	// eax, ebx, ecx, edx, esi, edi
	var code []byte
	all := append([]uint32{number}, args...)
	for i, load := range []byte{0xb8, 0xbb, 0xb9, 0xba, 0xbe, 0xbf} {
		value := uint32(0)
		if i < len(all) {
			value = all[i]
		}
		code = binary.LittleEndian.AppendUint32(append(code, load), value)
	}
	code = append(code,
		0xcd, 0x80, // int $0x80
		0xf7, 0xd8, // neg %eax
		0x89, 0xc3, // mov %eax, %ebx
		0xb8, 1, 0, 0, 0, // exit
		0xcd, 0x80)
	const base, head = 0x400000, 64 + 56
	elf := []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	put := func(size int, values ...uint64) {
		for _, v := range values {
			elf = append(elf, binary.LittleEndian.AppendUint64(nil, v)[:size]...)
		}
	}
	put(2, 2, 62)            // an executable file, x86-64
	put(4, 1)                // version
	put(8, base+head, 64, 0) // entry, and where the program header is
	put(4, 0)
	put(2, 64, 56, 1, 0, 0, 0)
	put(4, 1, 5) // load, to read and execute
	put(8, 0, base, base, uint64(head+len(code)), uint64(head+len(code)), 0x1000)
	return append(elf, code...)
}

// TestOtherABI: denied system calls are also denied to 32-bit programs, and by int $0x80.
func TestOtherABI(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only x86-64 has another ABI")
	}
	l := launchertest.Sandboxed(t, nil)
	ends := func(number uint32, args ...uint32) runner.Result {
		t.Helper()
		cmd := launchertest.Command(t, "./call")
		cmd.User, cmd.NoNetwork = launchertest.OwnIDs, true
		if err := os.WriteFile(filepath.Join(cmd.Dir, "call"), call32(number, args...), 0o755); err != nil {
			t.Fatal(err)
		}
		launchertest.OpenParents(t, cmd.Dir)
		return launchertest.Run(t, l, cmd)
	}
	const closeFD, ioctl, socket, keyctl, setrlimit, prlimit = 6, 54, 359, 288, 75, 340
	switch r := ends(closeFD, ^uint32(0)); {
	case r.Signal == "SIGSEGV":
		t.Skip("this kernel has no 32-bit ABI")
	case r.ExitCode != int(unix.EBADF):
		t.Fatalf("close: %+v", r)
	}
	for name, c := range map[string]struct {
		number uint32
		args   []uint32
		want   unix.Errno
	}{
		"vsock":                {socket, []uint32{unix.AF_VSOCK, unix.SOCK_STREAM}, unix.EPERM},
		"a rare family":        {socket, []uint32{unix.AF_XDP, unix.SOCK_RAW}, unix.EAFNOSUPPORT},
		"a pair of it":         {360, []uint32{unix.AF_XDP, unix.SOCK_RAW}, unix.EAFNOSUPPORT},
		"netlink of audit":     {socket, []uint32{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, unix.EPERM},
		"netlink of devices":   {socket, []uint32{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT}, unix.EPERM},
		"TIOCSTI":              {ioctl, []uint32{0, unix.TIOCSTI}, unix.EPERM},
		"TIOCLINUX":            {ioctl, []uint32{0, unix.TIOCLINUX}, unix.EPERM},
		"keyctl":               {keyctl, []uint32{unix.KEYCTL_GET_KEYRING_ID, ^uint32(2)}, unix.EPERM},
		"keyring of a name":    {keyctl, []uint32{unix.KEYCTL_JOIN_SESSION_KEYRING, 8}, unix.EPERM},
		"bpf":                  {357, nil, unix.EPERM},
		"perf_event_open":      {336, nil, unix.EPERM},
		"userfaultfd":          {374, []uint32{1}, unix.EPERM},
		"add_key":              {286, nil, unix.EPERM},
		"request_key":          {287, nil, unix.EPERM},
		"fanotify_init":        {338, []uint32{unix.FAN_REPORT_FID}, unix.EPERM},
		"open_by_handle_at":    {342, []uint32{^uint32(0)}, unix.EPERM},
		"socketcall":           {102, []uint32{1}, unix.EPERM},
		"modify_ldt":           {123, nil, unix.EPERM},
		"ioperm":               {101, nil, unix.EPERM},
		"uselib":               {86, nil, unix.EPERM},
		"ustat":                {62, nil, unix.EPERM},
		"vm86":                 {166, nil, unix.EPERM},
		"clock_settime":        {264, nil, unix.EPERM},
		"clock_settime64":      {404, nil, unix.EPERM},
		"clock_adjtime64":      {405, nil, unix.EPERM},
		"migrate_pages":        {294, nil, unix.EPERM},
		"io_uring_setup":       {425, []uint32{1}, unix.ENOSYS},
		"io_uring_enter":       {426, []uint32{^uint32(0)}, unix.ENOSYS},
		"io_setup":             {245, []uint32{1}, unix.ENOSYS},
		"fsopen":               {430, nil, unix.ENOSYS},
		"fspick":               {433, nil, unix.ENOSYS},
		"limit of core dumps":  {prlimit, []uint32{0, unix.RLIMIT_CORE, 1}, 0},
		"its older call":       {setrlimit, []uint32{unix.RLIMIT_CORE, 1}, 0},
		"limit of open files":  {prlimit, []uint32{0, unix.RLIMIT_NOFILE, 1}, unix.EFAULT},
		"asking for the limit": {prlimit, []uint32{0, unix.RLIMIT_CORE, 0, 1}, unix.EFAULT},
		"a useful socket":      {socket, []uint32{unix.AF_UNIX, 99}, unix.EINVAL},
	} {
		if r := ends(c.number, c.args...); r.ExitCode != int(c.want) {
			t.Errorf("%s: ends with %d (%s), want %d", name, r.ExitCode, r.Signal, c.want)
		}
	}
}

// TestOwnKeyring: a command that may have keyrings shares its session's with no other command, nor
// with the worker.
func TestOwnKeyring(t *testing.T) {
	l := launchertest.Sandboxed(t, nil)
	said := map[string]bool{}
	for range 2 {
		cmd := abuse(t, "name its keyring")
		cmd.Allow = []string{"keyrings"}
		said[launchertest.Say(t, l, cmd)] = true
	}
	if mine, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, false); err == nil {
		said["keyring "+strconv.Itoa(mine)] = true
	}
	if len(said) != 3 {
		t.Errorf("the keyrings of two commands and of this process: %v", said)
	}
}

// inheritVar makes this test binary a worker that has a command say its capabilities, in the folder
// that it names.
const inheritVar = "SANDBOX_TEST_INHERIT"

func inheritMain(dir string) {
	ctx := context.Background()
	l, err := runner.StartLauncher(ctx, runner.LauncherOptions{Sandbox: &sandbox.Options{}})
	if err == nil {
		out := filepath.Join(dir, "said")
		_, err = l.Run(ctx, runner.Command{
			Args: []string{"/bin/grep", "-E", "Cap(Inh|Eff)", "/proc/self/status"}, Dir: dir, Stdout: out,
			Folders: sandbox.Folders{Root: dir, TempDir: dir},
		})
		err = errors.Join(err, l.Close(ctx))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// TestInheritableCapabilities: no command gets capabilities with which the worker was started.
func TestInheritableCapabilities(t *testing.T) {
	launchertest.Sandboxed(t, nil) // or there is none on this machine
	dir := t.TempDir()
	worker := exec.Command("/proc/self/exe")
	worker.Env = append(os.Environ(), inheritVar+"="+dir)
	worker.SysProcAttr = &syscall.SysProcAttr{AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN}} // and inheritable
	if out, err := worker.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.Fields(launchertest.Read(t, filepath.Join(dir, "said")))
	const admin = 1 << unix.CAP_SYS_ADMIN
	for i, name := range []string{"CapInh:", "CapEff:"} {
		at := slices.Index(got, name)
		if at < 0 || at+1 == len(got) {
			t.Fatalf("got %q", got)
		}
		set, err := strconv.ParseUint(got[at+1], 16, 64)
		if err != nil || set&admin != 0 || i == 0 && set != 0 {
			t.Errorf("%s %#x, %v", name, set, err)
		}
	}
}
