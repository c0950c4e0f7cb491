package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/test/programs"
)

// TestExec runs commands remotely.
func TestExec(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	farm, address := f.With("FORERUNNER_MATCH_GRACE=1s").Up(filepath.Join(f.Dir, "data"), "--platform", "pool=cellar", "--platform", "side=left", "--platform", "side=right")
	f.Write("in/text", "hello\n")
	f.Write("in/large", strings.Repeat("x", 1<<20))
	input := []string{"--input", "in", "--platform", "pool=cellar"}
	run := func(args ...string) *programs.Process { return f.Exec(address, append(input, args...)...) }
	const script = `cat text; echo to stderr >&2; cd out; mkdir -p dir/empty; echo leaf >dir/leaf; ` +
		`echo '#!/bin/sh' >prog; chmod +x prog; ln -s dir/leaf link`
	make := []string{
		"--output", "out/prog", "--output", "out/dir", "--output", "out/link", "--", "/bin/sh", "-c", script,
	}

	run(append([]string{"--download", "got"}, make...)...).Expect(0, "hello\n", "inputs: 2 files, 1 MiB", "uploading: 1 MiB of 1 MiB", "done: ran for", "to stderr\n")
	expectOutputs(f, filepath.Join(f.Dir, "got/out"))
	run(append([]string{"--download", "hit"}, make...)...).Expect(0, "hello\n", "!uploading", "!ran for", "to stderr\n")
	expectOutputs(f, filepath.Join(f.Dir, "hit/out"))
	run(append([]string{"--skip-cache"}, make...)...).Expect(0, "hello\n", "!uploading", "done: ran for")
	run("--", "/bin/sh", "-c", "echo out; echo err >&2; exit 7").Expect(7, "out\n", " B\n", "!MiB of", "err\n")
	run("--quiet", "--env", "A=b c", "--", "/bin/sh", "-c", `echo "$A"; exit 3`).Expect(3, "b c\n", "!\n")
	run("--output", "never", "--", "/bin/true").Expect(1, "", "the command did not make never")
	run("--", "no-such-program").Expect(127, "", `exec "no-such-program": no such file`, "!goroutine")
	run("--", "./text").Expect(126, "", `exec "./text"`, "not executable")
	run("--timeout", "200ms", "--", "/bin/sleep", "60").Expect(124, "", "DeadlineExceeded")
	f.Exec(address, "--platform", "pool=attic", "--", "/bin/true").
		Expect(1, "", "no worker has pool=attic", "cellar")
	run("--platform", "side=left", "--platform", "side=right", "--", "/bin/true").Expect(0, "")
	run("--platform", "side=left", "--platform", "side=under", "--", "/bin/true").Expect(1, "", "no worker has side=under")
	run("--input", "missing", "--", "/bin/true").Expect(2, "", "--input", "missing", "no such file")

	if was := programs.TraceOf(f.T, farm); len(was.Launchers) != 2 {
		f.Errorf("%d launchers with FORERUNNER_SLOTS=2", len(was.Launchers))
	}
	farm.Drain()
}

// expectOutputs checks what the script of TestExec makes.
func expectOutputs(f *programs.Test, dir string) {
	f.Helper()
	for name, want := range map[string]string{"prog": "#!/bin/sh\n", "dir/leaf": "leaf\n", "link": "leaf\n"} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			f.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	for name, want := range map[string]os.FileMode{
		"prog": 0o755, "dir/leaf": 0o644, "dir/empty": os.ModeDir | 0o755, "link": os.ModeSymlink | 0o777,
	} {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			f.Errorf("%s: %v, want mode %v", name, info, want)
		}
	}
}
