package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is a user with no rights at all.
const nobody = 65534

// TestOrdinaryUser runs the programs as somebody who is not root: start, build, stop, start, build, kill in
// the middle of an action, start again, build.
func TestOrdinaryUser(t *testing.T) {
	programs := t.TempDir()
	if os.Getuid() == 0 { // the folders of the test are root's
		programs = sharedDir(t)
	}
	if out, err := exec.Command("go", "build", "-o", programs, "../cmd/forerunner", "../cmd/forerunner-scheduler",
		"../cmd/forerunner-worker").CombinedOutput(); err != nil {
		t.Fatalf("build programs: %v\n%s", err, out)
	}
	for _, test := range []struct {
		name string
		run  func(f *farmTest)
	}{
		{"up", testOrdinaryUp}, {"apart", testOrdinaryApart},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := &farmTest{T: t, programs: programs, dir: sharedDir(t), env: ownSandbox}
			if os.Getuid() == 0 {
				f.user = &syscall.Credential{Uid: nobody, Gid: nobody}
				for _, dir := range []string{programs, f.dir} {
					if err := os.Chmod(dir, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.Chown(f.dir, nobody, nobody); err != nil {
					t.Fatal(err)
				}
			}
			f.write("in/sub/text", "hello\n")
			f.write("in/empty", "")
			f.write("in/prog", "#!/bin/sh\ncat sub/text\n")
			if err := os.Chmod(filepath.Join(f.dir, "in/prog"), 0o755); err != nil {
				t.Fatal(err)
			}
			test.run(f)
		})
	}
}

// testOrdinaryUp has a farm in one process, with its folder where it is by default.
func testOrdinaryUp(f *farmTest) {
	listen := freeAddress(f.T)
	start := func() *process {
		p := f.start("forerunner", "up", "--listen", listen)
		p.waitFor(&p.stdout, upLine)
		return p
	}
	f.ordinaryLife(listen, start)
}

// testOrdinaryApart has scheduler, storage and worker in processes of their own, as one starts them by hand.
func testOrdinaryApart(f *farmTest) {
	listen := freeAddress(f.T)
	var scheduler *process
	f.ordinaryLife(listen, func() *process {
		if scheduler != nil && scheduler.cmd.Process.Signal(syscall.SIGKILL) == nil {
			<-scheduler.exited
		}
		scheduler = f.start("forerunner-scheduler", "--listen", listen)
		scheduler.waitFor(&scheduler.stdout, servesLine)
		worker := f.start("forerunner-worker", "--scheduler", "grpc://"+listen, "--storage", "grpc://"+listen)
		worker.waitFor(&worker.stderr, readyLine)
		return worker
	})
	scheduler.drain()
}

// ordinaryLife builds, with start before each time.
func (f *farmTest) ordinaryLife(listen string, start func() *process) {
	f.Helper()
	build := func(tag string) {
		f.Helper()
		f.execRemote(listen, "--input", "in", "--output", "out", "--download", "got-"+tag, "--", "/bin/sh", "-c",
			"set -e; ./prog; wc -c <empty; echo "+tag+" >&2; mkdir -p out/dir left/behind; ./prog >out/dir/text; "+
				"chmod 0555 out/dir; chmod 0 left; test $(id -u) != 0").
			expect(0, "hello\n0\n", tag)
		if got, err := os.ReadFile(filepath.Join(f.dir, "got-"+tag, "out/dir/text")); string(got) != "hello\n" {
			f.Errorf("output %q, %v", got, err)
		}
	}
	farm := start()
	build("first")
	for _, part := range []string{"no cgroups", "no FUSE for input roots", "no sandbox", "to_have_it"} {
		if !strings.Contains(farm.stderr.String(), part) {
			f.Errorf("the start does not say %q", part)
		}
	}
	farm.drain()

	farm = start()
	build("second")
	started := filepath.Join(f.dir, "started")
	client := f.execRemote(listen, "--input", "in", "--", "/bin/sh", "-c",
		fmt.Sprintf("[ -e %s ] && cat sub/text && exit; mkdir -p a/b; chmod 0 a; touch %[1]s; sleep 4131.8", started))
	f.waitForFile(started)
	was := traceOf(f.T, farm)
	farm.kill()
	f.expectNoLaunchers(was)

	farm = start()
	client.expect(0, "hello\n")
	build("third")
	farm.drain()
}
