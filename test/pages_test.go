//go:build pages

package test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// pagesTimeout bounds what the browser does, pagesActions is how many actions the build has.
	pagesTimeout = 8 * time.Minute
	pagesActions = 6
)

// TestPages opens every page in a real browser, during a real build: see web/browser/pages.mjs.
// FORERUNNER_TEST_IMAGES names a folder for screenshots.
func TestPages(t *testing.T) {
	if os.Getuid() != 0 {
		bazelNeeds(t, "a worker needs root")
	}
	bazel, node, chromium := debianBazel(t), programOf(t, "node", "npm"), programOf(t, "chromium", "chromium")
	f := &farmTest{T: t, programs: buildPrograms(t), dir: sharedDir(t), env: shareFolder}
	f.write("pages.yaml", "labels: {pages: {pool: pages}}\ncohorts: {farm: {labels: [pages], unit: slots}}\n")
	pages, gate := freeAddress(t), filepath.Join(f.dir, "open")
	farm, address := f.up(filepath.Join(f.dir, "data"), "--http", pages, "--platform", "pool=pages",
		"--config", filepath.Join(f.dir, "pages.yaml"))
	f.eventually("the farm says where its pages are", func() bool {
		return strings.Contains(farm.stdout.String(), "# Pages: http://"+pages+"/\n")
	})
	f.verb(address, "quota", "put", "main", "farm", "--min-quota", "1")
	c := newBazelClient(t, bazel, pagesWorkspace(f, gate), "--config=remote", "--jobs=20", "--keep_going",
		"--remote_timeout=3600", "--remote_instance_name=main", "--remote_default_exec_properties=pool=pages", "--remote_executor=grpc://"+address)
	built := make(chan bazelRun, 1)
	go func() { built <- c.run(t, "build", "//pages:all") }()
	defer f.write("open", "") // whatever happens, the build ends

	browse(f, node, "PAGES=http://"+pages, "GATE="+gate, "BROWSER="+chromium)
	if r := <-built; r.exitCode == 0 || !strings.Contains(r.output, "cancelled by an operator") {
		t.Errorf("a build of which an action was cancelled ended with %d:\n%s", r.exitCode, tail(r.output, 50))
	}
	c.shutdown(t)
	farm.drain()
}

// programOf returns the path of a program, or ends the test saying how to get it.
func programOf(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		bazelNeeds(t, "%s is missing: apt-get install %s", name, debian)
	}
	return path
}

// browse runs the script with these variables.
func browse(f *farmTest, node string, env ...string) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), pagesTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "pages.mjs")
	cmd.Dir = "../web/browser"
	cmd.Env = append(os.Environ(), append(env, "IMAGES="+os.Getenv("FORERUNNER_TEST_IMAGES"))...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends the browser
	cmd.WaitDelay = time.Minute
	if out, err := cmd.CombinedOutput(); err != nil {
		f.Errorf("the pages do not work in a browser: %v\n%s", err, out)
	}
}

// pagesWorkspace makes a workspace whose actions read one of their two inputs, and end when there is a gate.
func pagesWorkspace(f *farmTest, gate string) string {
	f.Helper()
	workspace := f.TempDir()
	if err := os.CopyFS(workspace, os.DirFS("../testdata/bazel")); err != nil {
		f.Fatalf("copy workspace: %v", err)
	}
	var build strings.Builder
	for i := range pagesActions {
		fmt.Fprintf(&build, `genrule(
    name = "action%d",
    srcs = ["used.txt", "unused.bin"],
    outs = ["action%[1]d.txt"],
    cmd = "cat $(location used.txt) > $@; echo working; until [ -e %[2]s ]; do sleep 0.1; done; echo done",
)
`, i, gate)
	}
	for name, text := range map[string]string{
		"BUILD": build.String(), "used.txt": "hello\n", "unused.bin": strings.Repeat("x", 1<<20),
	} {
		name = filepath.Join(workspace, "pages", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			f.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			f.Fatal(err)
		}
	}
	return workspace
}
