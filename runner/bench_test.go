package runner

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/forerunner-build/forerunner/cgroup"
)

// BenchmarkRun is a whole Run of /bin/true with both output files; "bare" is only the
// fork, exec and wait that nobody can do without.
func BenchmarkRun(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Env: []string{}})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := p.Wait(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, c := range []struct {
		name  string
		group int // cgroup version; -1 is no group
	}{{"no group", -1}, {"v2", 2}, {"v1", 1}} {
		b.Run(c.name, func(b *testing.B) {
			var slot *cgroup.Slot
			if c.group >= 0 {
				slot = newSlot(b, c.group)
			}
			l := newLauncher(b, slot)
			dir := b.TempDir()
			cmd := Command{
				Args: []string{"/bin/true"}, Dir: dir,
				Stdout: filepath.Join(dir, "out"), Stderr: filepath.Join(dir, "err"),
			}
			for b.Loop() {
				r, err := l.Run(b.Context(), cmd)
				if err != nil || r.Cause != Exited || r.ExitCode != 0 {
					b.Fatalf("%+v, %v", r, err)
				}
			}
		})
	}
}
