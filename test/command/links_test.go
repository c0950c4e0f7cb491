package command

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestHardLinks runs actions whose inputs are hard links, kills the farm in the
// middle of one, and starts it again.
func TestHardLinks(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.ShareFolder, "FORERUNNER_EXEC_FILESYSTEM=hardlink")
	data := filepath.Join(f.Dir, "data")
	upper := filepath.Join(data, "worker/upper")
	listen := freeport.Address(f.T)
	farm, _ := f.Up(data, "--listen", listen)
	f.Write("in/sub/text", "hello\n")
	f.Write("in/unread", "linked all the same")
	run := func(script string, more ...string) *programs.Process {
		args := append([]string{"--input", "in"}, more...)
		return f.Exec(listen, append(args, "--", "/bin/sh", "-c", script)...)
	}
	run("cat sub/text; stat -c %h unread").Expect(0, "hello\n2\n")
	run("echo more >> sub/text; cat sub/text", "--output", "sub/text", "--download", "got").Expect(0, "hello\nmore\n")
	run("cat sub/text; exit 3").Expect(3, "hello\n")

	started := filepath.Join(f.Dir, "started")
	client := run(fmt.Sprintf("[ -e %s ] && cat sub/text && exit; touch %[1]s; sleep 4131.7", started))
	f.WaitForFile(started)
	was := programs.TraceOf(f.T, farm)
	farm.Kill()
	if len(programs.FilesBelow(f.T, upper)) == 0 {
		f.Error("the killed farm left no links: nothing to clean up")
	}
	f.ExpectNoLaunchers(was)
	farm, _ = f.Up(data, "--listen", listen)
	client.Expect(0, "hello\n")
	farm.Drain()
	programs.ExpectNoMounts(f.T, data)
	if left := programs.FilesBelow(f.T, upper); len(left) > 0 {
		f.Errorf("left behind: %s", left)
	}
}

// TestNoPrivilege runs a farm that may not mount: it says so, and does without.
func TestNoPrivilege(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		programs.Needs(f.T, "taking a capability away needs setpriv (package util-linux)")
	}
	start := func(method string) *programs.Process {
		return f.With("FORERUNNER_EXEC_FILESYSTEM="+method).Start(setpriv, "--bounding-set=-sys_admin", "--inh-caps=-sys_admin",
			filepath.Join(f.Programs, "forerunner"), "up", "--data", "data", "--listen", "127.0.0.1:0")
	}
	start("fuse").Expect(1, "", "CAP_SYS_ADMIN", "hard links do without")

	f.Write("in/text", "hello\n")
	farm := start("auto")
	address := farm.WaitFor(&farm.Stdout, programs.UpLine)[1]
	run := func(script string) *programs.Process {
		return f.Exec(address, "--input", "in", "--output", "out", "--", "/bin/sh", "-c", script)
	}
	run("cat text | tee out").Expect(0, "hello\n")
	run("echo harm >> text; echo done > out").Expect(1, "", "Aborted", "an input was changed in place", "text")
	run("cat text; echo 2 > out").Expect(0, "hello\n")
	farm.Signal(syscall.SIGTERM)
	farm.Wait()
	for _, part := range []string{
		"no FUSE for input roots", "no overlayfs for input roots", "no sandbox", "missing", "costs", "remedy", "CAP_SYS_ADMIN",
	} {
		if !strings.Contains(farm.Stderr.String(), part) {
			f.Errorf("the start does not say %q", part)
		}
	}
}
