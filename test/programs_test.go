package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestPrograms runs the programs as an operator does: built, from outside, with signals.
func TestPrograms(t *testing.T) {
	if os.Getuid() != 0 {
		bazelNeeds(t, "a worker needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		bazelNeeds(t, "a worker needs FUSE: %v", err)
	}
	programs := buildPrograms(t)
	t.Run("size classes", func(t *testing.T) { // before the others, which run at the same time
		testSizes(&farmTest{T: t, programs: programs, dir: sharedDir(t), env: ownSandbox})
	})
	t.Run("soak", func(t *testing.T) {
		testSoak(&farmTest{T: t, programs: programs, dir: sharedDir(t), env: "GOGC=100"}) // garbage is no leak
	})
	t.Run("rot", func(t *testing.T) {
		testRot(&farmTest{T: t, programs: programs, dir: sharedDir(t), env: ownSandbox})
	})
	for _, test := range []struct {
		name string
		run  func(*farmTest)
		env  string
	}{
		{"exec", testExec, ownSandbox},
		{"live output", testLiveOutput, shareFolder},
		{"configuration", testConfiguration, ownSandbox},
		{"drain", testDrain, shareFolder},
		{"killed farm", testKilledFarm, shareFolder},
		{"killed worker", testKilledWorker, shareFolder},
		{"restarted worker", testRestartedWorker, shareFolder},
		{"folder in use", testFolderInUse, shareFolder},
		{"remote storage", testRemoteStorage, ownSandbox},
		{"hard links", testHardLinks, shareFolder},
		{"no privilege", testNoPrivilege, ownSandbox},
		{"operator", testOperator, shareFolder},
		{"quotas", testQuotas, shareFolder},
		{"traces", testTraces, ownSandbox},
		{"certificates", testCertificates, ownSandbox},
		{"cache writes", testCacheWrites, ownSandbox},
		{"reuse", testReuse, ownSandbox},
		{"readiness", testReadiness, ownSandbox},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(&farmTest{T: t, programs: programs, dir: sharedDir(t), env: test.env})
		})
	}
}

// In the one case actions run as by default, in the other they write where the test does.
const (
	ownSandbox  = "FORERUNNER_SANDBOX=auto"
	shareFolder = "FORERUNNER_SANDBOX=none"
)

// sharedDir makes a folder that actions see too, without a sandbox.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "forerunner-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func testExec(f *farmTest) {
	farm, address := f.up(filepath.Join(f.dir, "data"), "--match-grace", "1s", "--platform", "pool=cellar")
	f.write("in/text", "hello\n")
	f.write("in/large", strings.Repeat("x", 1<<20))
	input := []string{"--input", "in", "--platform", "pool=cellar"}
	run := func(args ...string) *process { return f.execRemote(address, append(input, args...)...) }
	const script = `cat text; echo to stderr >&2; cd out; mkdir -p dir/empty; echo leaf >dir/leaf; ` +
		`echo '#!/bin/sh' >prog; chmod +x prog; ln -s dir/leaf link`
	make := []string{
		"--output", "out/prog", "--output", "out/dir", "--output", "out/link", "--", "/bin/sh", "-c", script,
	}

	run(append([]string{"--download", "got"}, make...)...).expect(0, "hello\n", "inputs: 2 files, 1024 KiB", "uploading: 1024 KiB of 1024 KiB", "executing", "to stderr\n")
	expectOutputs(f, filepath.Join(f.dir, "got/out"))
	run(append([]string{"--download", "hit"}, make...)...).expect(0, "hello\n", "!uploading", "!executing", "to stderr\n")
	expectOutputs(f, filepath.Join(f.dir, "hit/out"))
	run(append([]string{"--skip-cache"}, make...)...).expect(0, "hello\n", "!uploading", "executing")
	run("--", "/bin/sh", "-c", "echo out; echo err >&2; exit 7").expect(7, "out\n", " B\n", "!KiB of", "err\n")
	run("--quiet", "--env", "A=b c", "--", "/bin/sh", "-c", `echo "$A"; exit 3`).expect(3, "b c\n", "!\n")
	run("--output", "never", "--", "/bin/true").expect(1, "", "the command did not make never")
	run("--", "no-such-program").expect(1, "", `exec "no-such-program": no such file`, "!goroutine")
	run("--", "./text").expect(1, "", `exec "./text"`, "not executable")
	run("--timeout", "200ms", "--", "/bin/sleep", "60").expect(1, "", "DeadlineExceeded")
	f.execRemote(address, "--platform", "pool=attic", "--", "/bin/true").
		expect(1, "", "no worker has pool=attic", "cellar")
	run("--input", "missing", "--", "/bin/true").expect(1, "", "--input", "missing", "no such file")

	if was := traceOf(f.T, farm); len(was.launchers) != 2 {
		f.Errorf("%d launchers with FORERUNNER_SLOTS=2", len(was.launchers))
	}
	farm.drain()
}

// expectOutputs checks what the script of testExec makes.
func expectOutputs(f *farmTest, dir string) {
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

func testConfiguration(f *farmTest) {
	for program, flags := range map[string][]string{
		"forerunner up":        {"--data", "--listen", "--slots", "--fetch-width", "--report-width", "--platform", "--size-class", "--cache-size", "--http", "--exec-filesystem", "--upper-memory", "--prefetch"},
		"forerunner profile":   {"--remote", "--profiles", "--tree", "--suggest"},
		"forerunner exec":      {"--remote", "--input", "--output", "--download", "--platform", "--timeout"},
		"forerunner-scheduler": {"--listen", "--http", "--storage", "--data", "--cache-size", "--state"},
		"forerunner-worker": {
			"--scheduler", "--storage", "--slots", "--size-class", "--platform", "--instance-prefix",
			"--id", "--data", "--cache-dir", "--mount", "--cache-size", "--http", "--exec-filesystem", "--state", "--prefetch",
		},
	} {
		for _, ask := range []string{"--help", "--print-config"} {
			p := f.start(append(strings.Fields(program), ask)...)
			if code := p.wait(); code != 0 {
				f.Errorf("%s %s: exit code %d", program, ask, code)
			}
			for _, flag := range flags {
				if !strings.Contains(p.stdout.String(), flag) {
					f.Errorf("%s %s does not name %s", program, ask, flag)
				}
			}
		}
	}
	expectConfig := func(want string, args ...string) {
		f.Helper()
		p := f.start(append(args, "--print-config")...)
		if p.wait(); !strings.Contains(p.stdout.String(), want+"\n") {
			f.Errorf("%s: no %s in\n%s", args, want, &p.stdout)
		}
	}
	expectConfig("--slots=2", "forerunner", "up") // from the environment
	expectConfig("--slots=5", "forerunner", "up", "--slots", "5")
	f.start("forerunner", "exec").expect(1, "", "command")
	f.start("forerunner-worker", "--slots", "many").expect(1, "", "--slots")
	f.start("forerunner-worker", "--data", "worker", "--cache-size", "huge").expect(1, "", "--cache-size")
}

// testDrain stops a farm while an action runs: it ends the action, and then itself.
func testDrain(f *farmTest) {
	data := filepath.Join(f.dir, "data")
	farm, address := f.up(data)
	was := traceOf(f.T, farm)
	started, release := filepath.Join(f.dir, "started"), filepath.Join(f.dir, "release")
	client := f.execRemote(address, "--timeout", "50s", "--output", "out", "--", "/bin/sh", "-c",
		fmt.Sprintf("touch %s; until [ -e %s ]; do sleep 0.05; done; echo finished | tee out; exit 4", started, release))
	f.waitForFile(started)
	farm.signal(syscall.SIGTERM)
	farm.waitFor(&farm.stderr, regexp.MustCompile("finishing what runs"))
	f.write("release", "")

	client.expect(4, "finished\n")
	if got, err := os.ReadFile(filepath.Join(f.dir, "out")); string(got) != "finished\n" {
		f.Errorf("output %q, %v", got, err)
	}
	if code := farm.wait(); code != 0 {
		f.Errorf("exit code %d after SIGTERM, want 0", code)
	}
	expectNoMounts(f.T, data)
	f.expectNoLaunchers(was)
	f.expectNoGroups(was)
	for _, dir := range []string{"worker/work", "worker/upper", "worker/mount", "worker/cas/tmp", "storage/cas/tmp"} {
		if left := filesBelow(f.T, filepath.Join(data, dir)); len(left) > 0 {
			f.Errorf("left behind: %s", left)
		}
	}
}

// testKilledFarm kills a farm in the middle of an action and of an upload, and starts it again.
func testKilledFarm(f *farmTest) {
	data := filepath.Join(f.dir, "data")
	listen := freeAddress(f.T)
	farm, _ := f.up(data, "--listen", listen)
	was := traceOf(f.T, farm)
	f.write("in/large", strings.Repeat("y", 1<<20))
	started, hang := filepath.Join(f.dir, "started"), fmt.Sprintf("4131.%d", os.Getpid())
	script := fmt.Sprintf("[ -e %s ] && echo again && exit; touch %[1]s; echo junk >large; setsid sleep %s & sleep %[2]s", started, hang)
	client := f.execRemote(listen, "--input", "in", "--", "/bin/sh", "-c", script)
	f.waitForFile(started)
	half := strings.Repeat("z", 1<<20)
	f.uploadHalf(listen, digest.Of(digest.SHA256, []byte(half)), half)
	f.eventually("half a blob is there", func() bool { return len(filesBelow(f.T, filepath.Join(data, "storage/cas/tmp"))) > 0 })

	farm.kill()
	if mountsBelow(f.T, data) == 0 {
		f.Error("the killed farm left no mount: nothing to clean up")
	}
	f.expectNoLaunchers(was)
	expectNoProcess(f.T, "sleep", hang)
	farm, _ = f.up(data, "--listen", listen)

	client.expect(0, "again\n") // it has waited, and started its action anew
	f.expectNoRoots(data)
	if left := filesBelow(f.T, filepath.Join(data, "storage/cas/tmp")); len(left) > 0 {
		f.Errorf("half-written blobs: %s", left)
	}
	f.execRemote(listen, "--input", "in", "--", "/usr/bin/wc", "-c", "large").expect(0, "1048576 large\n", "!KiB of")
	f.execRemote(listen, "--input", "in", "--", "/usr/bin/wc", "-c", "large").expect(0, "1048576 large\n", "!uploading")
	now := traceOf(f.T, farm)
	farm.drain()
	expectNoMounts(f.T, data)
	f.expectNoLaunchers(now)
	f.expectNoGroups(was)
	f.expectNoGroups(now)
}

// testFolderInUse starts a second farm on the folder of one that has work: it is refused, and the
// first one is not disturbed.
func testFolderInUse(f *farmTest) {
	data := filepath.Join(f.dir, "data")
	farm, address := f.up(data)
	f.write("in/text", "hello\n")
	started, release := filepath.Join(f.dir, "started"), filepath.Join(f.dir, "release")
	client := f.execRemote(address, "--timeout", "50s", "--input", "in", "--", "/bin/sh", "-c",
		fmt.Sprintf("touch %s; until [ -e %s ]; do sleep 0.05; done; cat text", started, release))
	f.waitForFile(started)
	if err := os.Symlink("data", filepath.Join(f.dir, "alias")); err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{"data", "alias"} {
		f.start("forerunner", "up", "--data", name, "--listen", "127.0.0.1:0").expect(1, "", name, "in use by another process")
	}
	f.start("forerunner", "up", "--data", "other", "--listen", address).expect(1, "", "--listen", address)
	f.write("release", "")
	client.expect(0, "hello\n")
	farm.drain()
}
