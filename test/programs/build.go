package programs

import (
	"os"
	"os/exec"
	"path/filepath"
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

// Build builds all programs of the module and returns their folder. It is the same for all tests, so that
// the programs are linked once: "go build" leaves what is up to date as it is.
func Build(t testing.TB) string {
	t.Helper()
	root := Root(t)
	dir := filepath.Join(root, "build", "test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.Create(filepath.Join(root, "build", "test.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // which unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatalf("lock %s: %v", lock.Name(), err)
	}
	cmd := exec.Command("go", "build", "-o", dir, "./cmd/forerunner", "./cmd/forerunner-scheduler", "./cmd/forerunner-worker")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build programs: %v\n%s", err, out)
	}
	return dir
}
