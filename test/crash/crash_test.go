package crash

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestDrain stops a farm while an action runs: it ends the action, and then itself.
func TestDrain(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.ShareFolder)
	data := filepath.Join(f.Dir, "data")
	farm, address := f.Up(data)
	was := programs.TraceOf(f.T, farm)
	started, release := filepath.Join(f.Dir, "started"), filepath.Join(f.Dir, "release")
	client := f.Exec(address, "--timeout", "50s", "--output", "out", "--", "/bin/sh", "-c",
		fmt.Sprintf("touch %s; until [ -e %s ]; do sleep 0.05; done; echo finished | tee out; exit 4", started, release))
	f.WaitForFile(started)
	farm.Signal(syscall.SIGTERM)
	farm.WaitFor(&farm.Stderr, regexp.MustCompile("finishing what runs"))
	f.Write("release", "")

	client.Expect(4, "finished\n")
	if got, err := os.ReadFile(filepath.Join(f.Dir, "out")); string(got) != "finished\n" {
		f.Errorf("output %q, %v", got, err)
	}
	if code := farm.Wait(); code != 0 {
		f.Errorf("exit code %d after SIGTERM, want 0", code)
	}
	programs.ExpectNoMounts(f.T, data)
	f.ExpectNoLaunchers(was)
	f.ExpectNoGroups(was)
	for _, dir := range []string{"worker/work", "worker/upper", "worker/mount", "storage/cas/tmp"} {
		if left := programs.FilesBelow(f.T, filepath.Join(data, dir)); len(left) > 0 {
			f.Errorf("left behind: %s", left)
		}
	}
}

// TestKilledFarm kills a farm in the middle of an action and of an upload, and starts it again.
func TestKilledFarm(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.ShareFolder)
	data := filepath.Join(f.Dir, "data")
	listen := freeport.Address(f.T)
	farm, _ := f.Up(data, "--listen", listen)
	was := programs.TraceOf(f.T, farm)
	f.Write("in/large", strings.Repeat("y", 1<<20))
	started, hang := filepath.Join(f.Dir, "started"), fmt.Sprintf("4131.%d", os.Getpid())
	script := fmt.Sprintf("[ -e %s ] && echo again && exit; touch %[1]s; echo junk >large; setsid sleep %s & sleep %[2]s", started, hang)
	client := f.Exec(listen, "--input", "in", "--", "/bin/sh", "-c", script)
	f.WaitForFile(started)
	half := strings.Repeat("z", 1<<20)
	uploadHalf(f, listen, digest.Of(digest.SHA256, []byte(half)), half)
	f.Eventually("half a blob is there", func() bool { return len(programs.FilesBelow(f.T, filepath.Join(data, "storage/cas/tmp"))) > 0 })

	farm.Kill()
	if programs.MountsBelow(f.T, data) == 0 {
		f.Error("the killed farm left no mount: nothing to clean up")
	}
	f.ExpectNoLaunchers(was)
	programs.ExpectNoProcess(f.T, "sleep", hang)
	farm, _ = f.Up(data, "--listen", listen)

	client.Expect(0, "again\n") // it has waited, and its action has started again
	f.ExpectNoRoots(data)
	if left := programs.FilesBelow(f.T, filepath.Join(data, "storage/cas/tmp")); len(left) > 0 {
		f.Errorf("half-written blobs: %s", left)
	}
	f.Exec(listen, "--input", "in", "--", "/usr/bin/wc", "-c", "large").Expect(0, "1048576 large\n", "!KiB of")
	f.Exec(listen, "--input", "in", "--", "/usr/bin/wc", "-c", "large").Expect(0, "1048576 large\n", "!uploading")
	now := programs.TraceOf(f.T, farm)
	farm.Drain()
	programs.ExpectNoMounts(f.T, data)
	f.ExpectNoLaunchers(now)
	f.ExpectNoGroups(was)
	f.ExpectNoGroups(now)
}

// TestFolderInUse starts a second farm on the folder of one that has work: it is refused, and the
// first one is not disturbed.
func TestFolderInUse(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.ShareFolder)
	data := filepath.Join(f.Dir, "data")
	farm, address := f.Up(data)
	f.Write("in/text", "hello\n")
	started, release := filepath.Join(f.Dir, "started"), filepath.Join(f.Dir, "release")
	client := f.Exec(address, "--timeout", "50s", "--input", "in", "--", "/bin/sh", "-c",
		fmt.Sprintf("touch %s; until [ -e %s ]; do sleep 0.05; done; cat text", started, release))
	f.WaitForFile(started)
	if err := os.Symlink("data", filepath.Join(f.Dir, "alias")); err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{"data", "alias"} {
		f.Start("forerunner", "up", "--data", name, "--listen", "127.0.0.1:0").Expect(1, "", name, fmt.Sprintf("in use by another process: %d (forerunner)", farm.Pid()))
	}
	f.Start("forerunner", "up", "--data", "other", "--listen", address).Expect(1, "", "--listen", address)
	f.Write("release", "")
	client.Expect(0, "hello\n")
	farm.Drain()
}
