package test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// testHardLinks runs actions whose inputs are hard links, kills the farm in the
// middle of one, and starts it again.
func testHardLinks(f *farmTest) {
	data := filepath.Join(f.dir, "data")
	upper := filepath.Join(data, "worker/upper")
	listen := freeAddress(f.T)
	up := []string{"--listen", listen, "--exec-filesystem", "hardlink"}
	farm, _ := f.up(data, up...)
	f.write("in/sub/text", "hello\n")
	f.write("in/unread", "linked all the same")
	run := func(script string, more ...string) *process {
		args := append([]string{"--input", "in"}, more...)
		return f.execRemote(listen, append(args, "--", "/bin/sh", "-c", script)...)
	}
	run("cat sub/text; stat -c %h unread").expect(0, "hello\n2\n")
	run("echo more >> sub/text; cat sub/text", "--output", "sub/text", "--download", "got").expect(0, "hello\nmore\n")
	run("cat sub/text; exit 3").expect(3, "hello\n")

	started := filepath.Join(f.dir, "started")
	client := run(fmt.Sprintf("[ -e %s ] && cat sub/text && exit; touch %[1]s; sleep 4131.7", started))
	f.waitForFile(started)
	was := traceOf(f.T, farm)
	farm.kill()
	if len(filesBelow(f.T, upper)) == 0 {
		f.Error("the killed farm left no links: nothing to clean up")
	}
	f.expectNoLaunchers(was)
	farm, _ = f.up(data, up...)
	client.expect(0, "hello\n")
	farm.drain()
	expectNoMounts(f.T, data)
	if left := filesBelow(f.T, upper); len(left) > 0 {
		f.Errorf("left behind: %s", left)
	}
}

// testNoPrivilege runs a farm that may not mount: it says so, and does without.
func testNoPrivilege(f *farmTest) {
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		bazelNeeds(f.T, "taking a capability away needs setpriv (package util-linux)")
	}
	start := func(method string) *process {
		return f.start(setpriv, "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", filepath.Join(f.programs, "forerunner"),
			"up", "--data", "data", "--listen", "127.0.0.1:0", "--exec-filesystem", method)
	}
	start("fuse").expect(1, "", "CAP_SYS_ADMIN", "hard links do without")

	f.write("in/text", "hello\n")
	farm := start("auto")
	address := farm.waitFor(&farm.stdout, upLine)[1]
	run := func(script string) *process {
		return f.execRemote(address, "--input", "in", "--output", "out", "--", "/bin/sh", "-c", script)
	}
	run("cat text | tee out").expect(0, "hello\n")
	run("echo harm >> text; echo done > out").expect(1, "", "Aborted", "an input was changed in place", "text")
	run("cat text; echo 2 > out").expect(0, "hello\n")
	farm.signal(syscall.SIGTERM)
	farm.wait()
	for _, part := range []string{
		"no FUSE for input roots", "no overlayfs for input roots", "no sandbox", "missing", "costs", "to_have_it", "CAP_SYS_ADMIN",
	} {
		if !strings.Contains(farm.stderr.String(), part) {
			f.Errorf("the start does not say %q", part)
		}
	}
}
