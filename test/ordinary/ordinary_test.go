package ordinary

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestOrdinaryUser runs the programs as a user other than root: start, build, stop, start, build,
// kill in the middle of an action, start again, build.
func TestOrdinaryUser(t *testing.T) {
	for _, test := range []struct {
		name string
		run  func(f *programs.Test)
	}{
		{"up", testOrdinaryUp}, {"apart", testOrdinaryApart},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := programs.NewOrdinary(t, programs.OwnSandbox)
			f.Write("in/sub/text", "hello\n")
			f.Write("in/empty", "")
			f.Write("in/prog", "#!/bin/sh\ncat sub/text\n")
			if err := os.Chmod(filepath.Join(f.Dir, "in/prog"), 0o755); err != nil {
				t.Fatal(err)
			}
			test.run(f)
		})
	}
}

// testOrdinaryUp has a farm in one process, with its folder where it is by default.
func testOrdinaryUp(f *programs.Test) {
	listen := freeport.Address(f.T)
	start := func() *programs.Process {
		p := f.Start("forerunner", "up", "--listen", listen)
		p.WaitFor(&p.Stdout, programs.UpLine)
		return p
	}
	ordinaryLife(f, listen, start)
}

// testOrdinaryApart has scheduler, storage and worker in processes of their own, as one starts them
// by hand.
func testOrdinaryApart(f *programs.Test) {
	listen := freeport.Address(f.T)
	var scheduler *programs.Process
	ordinaryLife(f, listen, func() *programs.Process {
		if scheduler != nil {
			scheduler.Kill()
		}
		scheduler = f.Start("forerunner-scheduler", "--listen", listen)
		scheduler.WaitFor(&scheduler.Stdout, programs.ServesLine)
		worker := f.Start("forerunner-worker", "--scheduler", "grpc://"+listen, "--storage", "grpc://"+listen)
		worker.WaitFor(&worker.Stderr, programs.ReadyLine)
		return worker
	})
	scheduler.Drain()
}

// TestSandboxIsNeeded has a setting that needs the sandbox that an ordinary user cannot have: the
// worker ends as it does for every setting that it cannot use.
func TestSandboxIsNeeded(t *testing.T) {
	t.Parallel()
	f := programs.NewOrdinary(t, programs.OwnSandbox)
	f.Write("worker.yaml", "tuning: {network: off}\n")
	f.Start("forerunner-worker", "--scheduler", "grpc://127.0.0.1:1", "--storage", "grpc://127.0.0.1:1", "--config", "worker.yaml").
		Expect(2, "", "tuning.network: off needs --sandbox=namespaces")
}

// ordinaryLife builds, with start before each time.
func ordinaryLife(f *programs.Test, listen string, start func() *programs.Process) {
	f.Helper()
	build := func(tag string) {
		f.Helper()
		f.Exec(listen, "--input", "in", "--output", "out", "--download", "got-"+tag, "--", "/bin/sh", "-c",
			"set -e; ./prog; wc -c <empty; echo "+tag+" >&2; mkdir -p out/dir left/behind; ./prog >out/dir/text; "+
				"chmod 0555 out/dir; chmod 0 left; test $(id -u) != 0").
			Expect(0, "hello\n0\n", tag)
		if got, err := os.ReadFile(filepath.Join(f.Dir, "got-"+tag, "out/dir/text")); string(got) != "hello\n" {
			f.Errorf("output %q, %v", got, err)
		}
	}
	farm := start()
	build("first")
	for _, part := range []string{"no cgroups", "no FUSE for input roots", "no sandbox", "remedy"} {
		if !strings.Contains(farm.Stderr.String(), part) {
			f.Errorf("the start does not say %q", part)
		}
	}
	farm.Drain()

	farm = start()
	build("second")
	started := filepath.Join(f.Dir, "started")
	client := f.Exec(listen, "--input", "in", "--", "/bin/sh", "-c",
		fmt.Sprintf("[ -e %s ] && cat sub/text && exit; mkdir -p a/b; chmod 0 a; touch %[1]s; sleep 4131.8", started))
	f.WaitForFile(started)
	was := programs.TraceOf(f.T, farm)
	farm.Kill()
	f.ExpectNoLaunchers(was)

	farm = start()
	client.Expect(0, "hello\n")
	build("third")
	farm.Drain()
}

// TestOtherUsers has others of the machine call a farm of an ordinary user, whose commands run as
// that user: they may not, neither its port for calls nor its pages. Root may.
func TestOtherUsers(t *testing.T) {
	f := programs.NewOrdinary(t, programs.OwnSandbox)
	pages := freeport.Address(t)
	farm, address := f.Up(filepath.Join(f.Dir, "data"), "--http", pages)
	stranger, root := f.As(12345), f.As(0)
	stranger.Exec(address, "--", "/bin/sh", "-c", "echo hello >"+filepath.Join(f.Dir, "written")).
		Expect(1, "", "only its user nobody and root may use it", "user 12345 may not call", "--tls-client-ca")
	stranger.Exec(address, "--input", "/usr/share/doc/bash", "--", "/bin/true").Expect(1, "", "user 12345 may not call")
	if f.Exists("written") {
		t.Error("a stranger's command ran")
	}
	page := func(by *programs.Test) string {
		p := by.Start("/usr/bin/curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://"+pages+"/")
		p.Wait()
		return p.Stdout.String()
	}
	for name, c := range map[string]struct {
		by   *programs.Test
		code string
	}{"a stranger": {stranger, "403"}, "the user": {f, "200"}, "root": {root, "200"}} {
		if code := page(c.by); code != c.code {
			t.Errorf("%s gets %s for a page, want %s", name, code, c.code)
		}
	}
	for _, by := range []*programs.Test{f, root} {
		by.Exec(address, "--", "/bin/echo", "hello").Expect(0, "hello\n")
	}
	farm.Drain()
}
