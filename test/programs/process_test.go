package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// victim is set for the test that is killed.
const victim = "FORERUNNER_TEST_VICTIM"

// TestNothingOutlivesTests kills a test. The program that it has started must end, mounts in its
// folder must be detached, if the test runs as root, and the folder must be removed.
func TestNothingOutlivesTests(t *testing.T) {
	if os.Getenv(victim) != "" {
		f := &Test{T: t, Dir: SharedDir(t)}
		mind(t, f.Dir)
		for _, name := range []string{"a", "a/b"} {
			place := filepath.Join(f.Dir, name)
			if err := os.Mkdir(place, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mount("test", place, "tmpfs", 0, ""); err != nil && os.Getuid() == 0 {
				t.Fatal(err)
			}
		}
		p := f.Start("/bin/sleep", "300")
		fmt.Println(p.Pid(), f.Dir)
		<-p.Exited
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNothingOutlivesTests$")
	cmd.Env = append(os.Environ(), victim+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = start(cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	var dir string
	_, err = fmt.Fscan(out, &pid, &dir)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	f := &Test{T: t}
	f.Eventually("the program has ended", func() bool {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err != nil || len(line) == 0 // of a zombie
	})
	f.Eventually("the folder has gone", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
	ExpectNoMounts(t, dir)
}
