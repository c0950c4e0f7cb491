package operator

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestNewerFolder: an older program refuses a folder of a newer version in one sentence, and changes
// nothing in it.
func TestNewerFolder(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	const newer, older = "format 7\n", "format 1\n"
	for name, text := range map[string]string{"": newer, "worker": older} {
		dir := filepath.Join(f.Dir, "up", name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			f.Fatal(err)
		}
		f.Write(filepath.Join("up", name, "forerunner.lock"), text)
	}
	f.Start("forerunner", "up", "--data", "up", "--listen", freeport.Address(f.T), "--http", freeport.Address(f.T)).
		Expect(1, "", "is of a newer version of Forerunner: its format is 7", "!worker")
	for name, want := range map[string]string{"": newer, "worker": older} {
		if text, err := os.ReadFile(filepath.Join(f.Dir, "up", name, "forerunner.lock")); err != nil || string(text) != want {
			f.Errorf("the lock of %q has %q, %v", name, text, err)
		}
	}
	if list, err := os.ReadDir(filepath.Join(f.Dir, "up")); err != nil || len(list) != 2 {
		f.Errorf("the folder has %v, %v", list, err)
	}
}
