//go:build pages

package pages

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

	"github.com/forerunner-build/forerunner/auth/login/logintest"
	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/bazel"
	"github.com/forerunner-build/forerunner/test/programs"
)

const (
	// pagesTimeout bounds what the browser does, pagesActions is how many actions the build has.
	pagesTimeout = 8 * time.Minute
	pagesActions = 6
)

// TestPages opens every page in a real browser, during a real build: see web/browser/pages.mjs.
// FORERUNNER_TEST_IMAGES names a folder for screenshots.
func TestPages(t *testing.T) {
	program, node, chromium := bazel.Debian(t), programOf(t, "node", "npm"), programOf(t, "chromium", "chromium")
	f := programs.New(t, programs.ShareFolder)
	f.Write("pages.yaml", "labels: {pages: {pool: pages}}\ncohorts: {farm: {labels: [pages], unit: slots}}\n"+login(t))
	pages, gate := freeport.Address(t), filepath.Join(f.Dir, "open")
	data := filepath.Join(f.Dir, "data")
	remember(t, filepath.Join(data, "durable", "history"))
	farm, address := f.Up(data, "--http", pages, "--platform", "pool=pages",
		"--config", filepath.Join(f.Dir, "pages.yaml"))
	f.Eventually("the farm says where its pages are", func() bool {
		return strings.Contains(farm.Stdout.String(), "# Pages: http://"+pages+"/\n")
	})
	f.Verb(address, "quota", "put", "main", "farm", "--min-quota", "1")
	firstPages := freeport.Address(t)
	first, _ := f.Up(filepath.Join(f.Dir, "first"), "--http", firstPages)
	c := bazel.New(t, program, bazel.Plain(t), "--config=remote", "--jobs=20", "--keep_going",
		"--remote_timeout=3600", "--remote_instance_name=main", "--remote_default_exec_properties=pool=pages", "--remote_executor=grpc://"+address)
	published := publish(t, c, address)
	c.WritePackage(t, "pages", gated(gate))
	built := c.Start(t, "build", "//pages:all")
	browse(f, node, "PAGES=http://"+pages, "FIRST=http://"+firstPages, "PUBLISHED="+published, "GATE="+gate, "BROWSER="+chromium)
	f.Write("open", "") // the build must end in any case
	if r := <-built; r.ExitCode == 0 || !strings.Contains(r.Output, "cancelled by an operator") {
		t.Errorf("a build of which an action was cancelled ended with %d:\n%s", r.ExitCode, programs.Tail(r.Output, 50))
	}
	c.Shutdown(t)
	farm.Drain()
	first.Drain()
}

// publish has Bazel publish a build in which an action and a test fail, and returns its invocation.
func publish(t *testing.T, c *bazel.Client, address string) string {
	t.Helper()
	const invocation = "5a1e0000-0000-4000-8000-000000000001"
	c.WritePackage(t, "app", map[string]string{
		"BUILD": `
genrule(name = "made", outs = ["made.txt"], cmd = "echo > $@")
genrule(name = "broken", outs = ["broken.txt"], cmd = "printf '\\033[1mapp/main.c:3:9: \\033[1;31merror:\\033[0m no such thing\\n' >&2; exit 1")
sh_test(name = "passes", srcs = ["passes.sh"])
sh_test(name = "fails", srcs = ["fails.sh"])
`,
		"passes.sh": "#!/bin/sh\n", "fails.sh": "#!/bin/sh\necho expected 2, got 3\nexit 1\n",
	})
	for _, script := range []string{"passes.sh", "fails.sh"} {
		if err := os.Chmod(filepath.Join(c.Workspace(), "app", script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if r := c.Run(t, "test", "//app:all", "--bes_backend=grpc://"+address, "--invocation_id="+invocation); r.ExitCode == 0 {
		t.Errorf("a build of which an action fails ended well:\n%s", programs.Tail(r.Output, 50))
	}
	return invocation
}

// login gives everyone all rights, and lets users log in with an account that exists, or with one
// that does not.
func login(t *testing.T) string {
	t.Helper()
	issuer := logintest.New(t)
	return fmt.Sprintf(`
login:
  issuers:
  - {issuer: %q, title: Stand-in, client_id: %s, client_secret_file: %q}
  - {issuer: "https://127.0.0.1:1", title: Away, client_id: x}
access:
- {anyone: true, may: [execute, read, write, work, administer]}
`, issuer.URL(), logintest.ClientID, issuer.SecretFile())
}

// programOf returns the path of a program, or ends the test saying how to get it.
func programOf(t *testing.T, name, debian string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		programs.Needs(t, "%s is missing: apt-get install %s", name, debian)
	}
	return path
}

// browse runs the script with these variables.
func browse(f *programs.Test, node string, env ...string) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), pagesTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, "pages.mjs")
	cmd.Dir = filepath.Join(programs.Root(f.T), "web", "browser")
	cmd.Env = append(os.Environ(), append(env, "IMAGES="+os.Getenv("FORERUNNER_TEST_IMAGES"))...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends the browser
	cmd.WaitDelay = time.Minute
	if out, err := cmd.CombinedOutput(); err != nil {
		f.Errorf("the pages do not work in a browser: %v\n%s", err, out)
	}
}

// gated is a package whose actions read one of their two inputs, and end when there is a gate.
func gated(gate string) map[string]string {
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
	return map[string]string{"BUILD": build.String(), "used.txt": "hello\n", "unused.bin": strings.Repeat("x", 1<<20)}
}
