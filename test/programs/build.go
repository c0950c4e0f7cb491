package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// Root returns the folder of the module.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir != "/" {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("there is no module here")
	return ""
}

// builtVariable names the folder of programs that are up to date, so that no test need ask for that.
const builtVariable = "FORERUNNER_TEST_PROGRAMS"

// Build builds all programs of the module and returns their folder. It is the same for all tests,
// so that the programs are linked once: "go build" skips current programs.
func Build(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(builtVariable); dir != "" {
		return dir
	}
	root := Root(t)
	buildOnce.Do(func() { buildErr = build(root) })
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	return built(root)
}

// A test program asks once whether the programs are up to date, which takes a second.
var (
	buildOnce sync.Once
	buildErr  error
)

func built(root string) string { return filepath.Join(root, "build", "test") }

func build(root string) error {
	if err := os.MkdirAll(built(root), 0o755); err != nil {
		return err
	}
	lock, err := os.Create(built(root) + ".lock")
	if err != nil {
		return err
	}
	defer lock.Close() // which unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	// No debugger reads them.
	cmd := exec.Command("go", "build", "-ldflags=-w", "-o", built(root), "./cmd/forerunner", "./cmd/forerunner-scheduler", "./cmd/forerunner-worker")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build programs: %w\n%s", err, out)
	}
	return nil
}
