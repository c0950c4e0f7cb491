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
		name      string
		group     int // cgroup version; -1 is no group
		sandbox   bool
		noNetwork bool
	}{
		{"no group", -1, false, false},
		{"v2", 2, false, false},
		{"v1", 1, false, false},
		{"sandbox", -1, true, false},
		{"sandbox v2", 2, true, false},
		{"sandbox v2 no network", 2, true, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			var slot *cgroup.Slot
			if c.group >= 0 {
				slot = newSlot(b, c.group)
			}
			o := LauncherOptions{Cgroup: slot}
			if c.sandbox {
				o.Sandbox = &Sandbox{}
			}
			l := startLauncher(b, o)
			dir := b.TempDir()
			cmd := Command{
				Args: []string{"/bin/true"}, Dir: dir, NoNetwork: c.noNetwork,
				Stdout: filepath.Join(dir, "out"), Stderr: filepath.Join(dir, "err"),
			}
			cmd = sandboxed(b, l, cmd)
			for b.Loop() {
				r, err := l.Run(b.Context(), cmd)
				if err != nil || r.Cause != Exited || r.ExitCode != 0 {
					b.Fatalf("%+v, %v", r, err)
				}
			}
		})
	}
}
